"""An authenticated party and what it may do. Pure."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from foremind.domain.user import NO_NAME

Scope = Literal["chat", "memory:read", "memory:write", "host", "world", "metrics", "admin"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
#: The scopes of a token without a `scopes` claim: full access to the user's own data.
PLAYER_SCOPES: frozenset[Scope] = frozenset({"chat", "memory:read", "memory:write"})
#: Those of whoever claims to be a user in open mode, where everybody may host worlds.
CLAIMED_SCOPES: frozenset[Scope] = PLAYER_SCOPES | {"world"}
MAX_USER_CHARS = 128
_DOT_SEGMENTS = frozenset({".", ".."})  # URL clients remove them, so no path could name the user


def user_id_problem(user_id: str) -> str | None:
    """Return what is wrong with a user id, or None if it is valid."""
    if not 0 < len(user_id) <= MAX_USER_CHARS:
        return f"expected text of 1 to {MAX_USER_CHARS} characters"
    if user_id in _DOT_SEGMENTS:
        return "expected an id other than '.' and '..', which URL paths cannot contain"
    if "\n" in user_id:
        return "expected an id without line breaks, at which routes end"
    return None


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated party; `companions` are the slugs that it may open, None for all.

    `worlds` are the worlds of a game server, None for all. `on_behalf_of` is the user for whom an
    admin or a host acts. `issued_at` and `expires_at` are in
    seconds since the epoch, None when not stated; `key_id` and `key_fingerprint` identify the key
    that signed the token.
    """

    user_id: str
    name: str
    companions: frozenset[str] | None = None
    scopes: frozenset[Scope] = PLAYER_SCOPES
    issued_at: float | None = None
    expires_at: float | None = None
    token_id: str | None = None
    key_id: str | None = None
    key_fingerprint: str | None = None
    on_behalf_of: str | None = None
    worlds: frozenset[str] | None = None

    @property
    def effective_user_id(self) -> str:
        """The user whose data this principal works on."""
        return self.on_behalf_of or self.user_id

    @property
    def states_name(self) -> bool:
        """Whether the user's name is stated, and not only the id."""
        return self.name not in (NO_NAME, self.effective_user_id)

    @property
    def admin(self) -> bool:
        """Whether the principal has the scope `admin`."""
        return "admin" in self.scopes

    def acting_for(self, user_id: str, name: str) -> "Principal":
        """Return this principal as it acts for a user."""
        return replace(self, on_behalf_of=user_id, name=name)

    def may_open(self, slug: str) -> bool:
        """Tell whether this principal may talk to a companion."""
        return self.companions is None or slug in self.companions

    def hosts(self, world: str) -> bool:
        """Tell whether this principal is the game server of a world."""
        return self.allows("world") and (self.worlds is None or world in self.worlds or self.admin)

    def allows(self, scope: Scope) -> bool:
        """Tell whether a scope is granted; `admin` grants all."""
        return scope in self.scopes or self.admin

    def expired(self, now: float) -> bool:
        """Tell whether the token has expired at `now`, in seconds since the epoch."""
        return self.expires_at is not None and now >= self.expires_at
