"""Somebody who is known, and what it may do. Pure."""

from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["chat", "memory:read", "memory:write", "admin"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
#: What a token without `scopes` allows: everything about oneself.
PLAYER: frozenset[Scope] = SCOPES - {"admin"}
MAX_USER_CHARS = 128


@dataclass(frozen=True, slots=True)
class Caller:
    """A known caller; `companions` are the slugs it may open, None for all.

    `on_behalf_of` is the user whose data an admin asks for. `issued_at` and `expires_at` are
    seconds since the epoch, None where nothing says so; `key_id` is the key that signed for it.
    """

    user_id: str
    name: str
    companions: frozenset[str] | None = None
    scopes: frozenset[Scope] = PLAYER
    issued_at: float | None = None
    expires_at: float | None = None
    token_id: str | None = None
    key_id: str | None = None
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
