"""What an announcement of this or another process means for the sessions that it concerns."""

from collections.abc import Callable, Iterable

from foremind.domain.announcements import (
    AccessRevoked,
    Announcement,
    CompanionChanged,
    ConsentGiven,
    LayersChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    RelationshipDeleted,
    ReplyStored,
    SessionTaken,
    StateChanged,
    UserErased,
)
from foremind.domain.relationship import companion_id_of
from foremind.gateway.session import Session
from foremind.gateway.session_client import NOT_ALLOWED
from foremind.runtime.supervision import TaskSet


class AnnouncementDispatch:
    """Passes announcements to sessions, and ends those that they forbid.

    Args:
        end: ends a session.
        replace: ends a session that is used elsewhere.
        expel: ends a session for a reason that its client is told.
        tasks: run what has to be read.
    """

    def __init__(
        self,
        end: Callable[[Session], None],
        replace: Callable[[Session], None],
        expel: Callable[[Session, str], None],
        tasks: TaskSet,
    ) -> None:
        self._end = end
        self._replace = replace
        self._expel = expel
        self._tasks = tasks

    def dispatch(self, event: Announcement, sessions: Iterable[Session]) -> None:
        """Apply an announcement to those of some sessions that it concerns."""
        for session in sessions:
            match event:
                case SessionTaken() if event.session_id == session.id:
                    if event.origin != session.origin:
                        self._replace(session)
                case AccessRevoked():
                    self._on_revoked(event, session)
                case UserErased() if event.user_id == session.principal.effective_user_id:
                    self._end_erased(session)
                case CompanionChanged() if event.companion_id == companion_id_of(
                    session.relationship_id
                ):
                    self._tasks.begin(self._end_retired(session), "end-retired")
                case (
                    ReplyStored()
                    | StateChanged()
                    | RelationshipDeleted()
                    | ConsentGiven()
                    | MemoriesForgotten()
                    | LayersChanged()
                    | MemoriesChanged()
                    | MemoryAnnouncement()
                ) if event.relationship_id == session.relationship_id:
                    self._on_relationship(event, session)

    def _on_relationship(self, event: Announcement, session: Session) -> None:
        match event:
            case ReplyStored():
                if event.origin == session.origin:
                    session.windows.on_said(event.turn_id)
                else:
                    turns = [turn for turn in (event.message_turn_id, event.turn_id) if turn]
                    self._tasks.begin(
                        session.windows.report(turns, event.session_id), "report-turns"
                    )
            case StateChanged():
                self._tasks.begin(session.announcements.read_state(), "read-state")
            case RelationshipDeleted():
                self._end_erased(session)
            case _:
                session.announcements.handle(event)
                if isinstance(event, MemoriesForgotten):
                    self._tasks.begin(session.windows.report_erased(), "report-erased")

    def _on_revoked(self, event: AccessRevoked, session: Session) -> None:
        principal = session.principal
        if event.covers(principal.user_id, principal.token_id, principal.issued_at):
            self._expel(session, "token revoked")

    async def _end_retired(self, session: Session) -> None:
        if await session.is_retired():
            session.client.disconnect(NOT_ALLOWED, "the companion was retired")
            self._end(session)

    def _end_erased(self, session: Session) -> None:
        session.client.disconnect(NOT_ALLOWED, "the user was erased")
        self._end(session)
