"""Authentication and rate limiting of HTTP requests."""

from typing import Literal

from cachetools import LRUCache
from starlette.requests import Request

from fair_transport import TokenBucket
from foremind.auth.authority import Authority, require_scope
from foremind.auth.principal import CLAIMED_SCOPES, Principal, Scope, user_id_problem
from foremind.domain.clock import Clock
from foremind.domain.errors import (
    ForemindError,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
)
from foremind.domain.settings.settings import Settings, is_loopback
from foremind.domain.user import name_of
from foremind.storage.database import queue_connections_as

#: Whom an operation acts for. `user`: the token's own user, or with the scope `admin` whomever the
#: query names; open mode requires a name. `anyone`: nobody in particular; open mode needs no name.
#: `player`: whom the request names, as `RequestAuthenticator.player` has it.
Caller = Literal["user", "anyone", "player"]

_BURST_S = 4.0
_MAX_BUCKETS = 10_000


class RequestAuthenticator:
    """Authenticates HTTP requests and limits their rate per user.

    The database connections for a request are allocated fairly between users, one each at a time.
    """

    def __init__(self, authority: Authority, settings: Settings, clock: Clock) -> None:
        self._authority = authority
        self._settings = settings
        self._clock = clock
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(_MAX_BUCKETS)

    async def authenticate(
        self, request: Request, caller: Caller, scope: Scope | Literal[""]
    ) -> Principal | None:
        """Return the principal of a request; None in open mode, unless `caller` is `user`.

        Args:
            caller: whom the operation acts for.
            scope: that a token needs; "" for any token.

        Raises:
            NotAuthenticated: there is no valid token; or, in open mode, no user where one acts.
            NotAllowed: the token lacks the scope, or may not act for the user that is named.
            RateLimited: too many requests.
        """
        principal = await self._principal(request, caller)
        if principal is not None:
            if scope:
                require_scope(principal, scope)
            request.state.connection.mark_identified()
        return principal

    async def _principal(self, request: Request, caller: Caller) -> Principal | None:
        token, user_id = bearer_token(request), request.query_params.get("user")
        principal: Principal | None = None
        if caller == "user":
            principal = await self._authority.authenticate_request(token, user_id)
            queue_connections_as(principal.user_id)
        elif not self._settings.open_mode:
            principal = await self._authority.authenticate_token(token)
            if not principal.allows("host"):
                _check_own(principal, user_id or None)
        # Whoever acts for others is limited per player.
        if caller != "player" or not (principal is None or principal.allows("host")):
            self._limit_rate("" if principal is None else principal.user_id)
        return principal

    async def may_see_details(self, request: Request) -> bool:
        """Return whether a request that needs no token may learn what is wrong with the server.

        From this machine it may, and with a token of scope `metrics`.
        """
        if request.client is not None and is_loopback(request.client.host):
            return True
        try:
            principal = await self._authority.authenticate_token(bearer_token(request))
        except ForemindError:
            return False
        return principal.allows("metrics")

    def player(self, caller: Principal | None, user_id: str | None, name: str | None) -> Principal:
        """Return the principal whose turn a caller asks for.

        In open mode it is the user who is named. With a token of scope `host` or `admin`, too; any
        other token makes turns of its own user, whoever is named.

        Raises:
            NotAuthenticated: in open mode, nobody is named.
            InvalidMessage: the id is invalid.
            RateLimited: there are too many requests for this user.
        """
        if caller is not None and (user_id is None or not caller.allows("host")):
            return caller
        if user_id is None:
            raise NotAuthenticated("user: expected the id of a user", param="user")
        if problem := user_id_problem(user_id):
            raise InvalidMessage(f"user: {problem}", param="user")
        self._limit_rate(user_id)
        name = name_of(name, user_id)
        if caller is None:
            return Principal(user_id, name, scopes=CLAIMED_SCOPES)
        return caller.acting_for(user_id, name)

    def strict_player(
        self, caller: Principal | None, user_id: str | None, name: str | None = None
    ) -> Principal:
        """Return the principal for whom a caller acts, as `player`, but refuse other users' names.

        Raises:
            NotAllowed: the caller may act only for itself, and names another user.
            InvalidMessage: it states a name that its token states already, or the id is invalid.
            NotAuthenticated: in open mode, nobody is named.
            RateLimited: there are too many requests for this user.
        """
        if caller is not None and not caller.allows("host"):
            _check_own(caller, user_id)
            if name is not None:
                raise InvalidMessage("name: expected none, as the token says it", param="name")
        return self.player(caller, user_id, name)

    def _limit_rate(self, user_id: str) -> None:
        now = self._clock.monotonic()
        bucket = self._buckets.get(user_id)
        if bucket is None:
            bucket = self._buckets[user_id] = TokenBucket(self._settings.http_per_s, _BURST_S)
        wait = bucket.wait(now)
        if wait > 0:
            raise RateLimited(
                f"At most {self._settings.http_per_s:g} requests a second.", retry_after_s=wait
            )
        bucket.take(now)


def _check_own(principal: Principal, user_id: str | None) -> None:
    if user_id not in (None, principal.user_id):
        raise NotAllowed(
            "user: expected the token's own user, or a token with the scope host", param="user"
        )


def bearer_token(request: Request) -> str | None:
    """Return the token or key that a request presents; the case of `Bearer` does not matter."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.lstrip(" ") if scheme.lower() == "bearer" else None
