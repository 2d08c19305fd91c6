"""A session as operators see it."""

from dataclasses import dataclass

from foremind.gateway.session import Session


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as operators see it; `busy` while it answers a message."""

    session_id: str
    user: str
    companion: str
    connected: bool
    busy: bool


def snapshot_of(session: Session) -> SessionSnapshot:
    """Return a session as operators see it."""
    return SessionSnapshot(
        session.id,
        session.principal.effective_user_id,
        session.companion,
        session.detached_at is None,
        session.busy,
    )
