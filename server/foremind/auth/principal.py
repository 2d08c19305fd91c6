"""Somebody who is known, and what it may do. Pure."""

from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["chat", "memory:read", "memory:write", "host", "metrics", "admin"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
#: What a token without `scopes` allows: everything about oneself.
PLAYER: frozenset[Scope] = frozenset({"chat", "memory:read", "memory:write"})
MAX_USER_CHARS = 128
_STEPS = frozenset({".", ".."})  # a client would take them out of a path: nobody could reach them


def user_id_problem(user_id: str) -> str | None:
    """Return what is expected of a user's id and this one is not; None where it may be one."""
    if not 0 < len(user_id) <= MAX_USER_CHARS:
        return f"expected text of at most {MAX_USER_CHARS} characters"
    if user_id in _STEPS:
        return "expected another id than '.' or '..', which no address can hold"
    return None


@dataclass(frozen=True, slots=True)
class Principal:
    """A known caller; `companions` are the slugs it may open, None for all.

    `on_behalf_of` is the user whose data an admin asks for. `issued_at` and `expires_at` are
    seconds since the epoch, None where nothing says so; `key_id` and `key_fingerprint` are of the
    key that signed for it.
    """

    user_id: str
    name: str
    companions: frozenset[str] | None = None
    scopes: frozenset[Scope] = PLAYER
    issued_at: float | None = None
    expires_at: float | None = None
    token_id: str | None = None
    key_id: str | None = None
    key_fingerprint: str | None = None
    on_behalf_of: str | None = None

    @property
    def whose(self) -> str:
        """The user whose data this caller asks for."""
        return self.on_behalf_of or self.user_id

    @property
    def admin(self) -> bool:
        """Whether it acts for the operator, not only for itself."""
        return "admin" in self.scopes

    def may_open(self, slug: str) -> bool:
        """Tell whether this caller may talk with a companion."""
        return self.companions is None or slug in self.companions

    def allows(self, scope: Scope) -> bool:
        """Tell whether a scope is granted; `admin` grants every one."""
        return scope in self.scopes or self.admin

    def expired(self, now: float) -> bool:
        """Tell whether its time is over, at `now` in seconds since the epoch."""
        return self.expires_at is not None and now >= self.expires_at
