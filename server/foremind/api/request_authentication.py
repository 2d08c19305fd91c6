"""Authentication and rate limiting of HTTP requests."""

from cachetools import LRUCache
from starlette.requests import Request

from fair_transport import TokenBucket
from foremind.auth.authority import Authority, require_scope
from foremind.auth.principal import Principal, user_id_problem
from foremind.domain.clock import Clock
from foremind.domain.errors import InvalidMessage, NotAllowed, NotAuthenticated, RateLimited
from foremind.domain.settings.settings import Settings
from foremind.domain.user import name_of
from foremind.storage.database import queue_connections_as

_BEARER = "Bearer "
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

    async def authenticate(self, request: Request) -> Principal:
        """Return the principal of a request.

        Raises:
            NotAuthenticated: there is no valid token, or in open mode no user.
            NotAllowed: another user is named, without the scope `admin`.
            RateLimited: the user sends too many requests.
        """
        principal = await self._authority.authenticate_request(
            _bearer_token(request), request.query_params.get("user")
        )
        self._limit_rate(principal.user_id)
        request.state.connection.mark_identified()
        queue_connections_as(principal.user_id)
        return principal

    async def authenticate_unless_open(self, request: Request) -> Principal | None:
        """Return the principal of a request, or None in open mode, where no user is needed.

        Raises:
            NotAuthenticated: there is no valid token.
            NotAllowed: another user is named, without the scope `host` or `admin`.
            RateLimited: the user sends too many requests.
        """
        if self._settings.open_mode:
            self._limit_rate("")
            return None
        principal = await self._bearer(request)
        self._limit_rate(principal.user_id)
        request.state.connection.mark_identified()
        return principal

    async def authenticate_caller(self, request: Request) -> Principal | None:
        """Return the principal that asks for a turn, or None in open mode; see `player`.

        Raises:
            NotAuthenticated: there is no valid token.
            NotAllowed: the query names another user, without the scope `host` or `admin`.
            RateLimited: a caller that acts only for itself sends too many requests.
        """
        if self._settings.open_mode:
            return None
        caller = await self._bearer(request)
        if not caller.allows("host"):
            self._limit_rate(caller.user_id)
        request.state.connection.mark_identified()
        return caller

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
        return Principal(user_id, name) if caller is None else caller.acting_for(user_id, name)

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

    async def require_admin(self, request: Request) -> None:
        """Check that an operator makes a request.

        Raises:
            NotAuthenticated, NotAllowed, RateLimited: as `authenticate`, or the scope is missing.
        """
        require_scope(await self.authenticate(request), "admin")

    async def _bearer(self, request: Request) -> Principal:
        principal = await self._authority.authenticate_token(_bearer_token(request))
        if not principal.allows("host"):
            _check_own(principal, request.query_params.get("user") or None)
        return principal

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


def _bearer_token(request: Request) -> str | None:
    header = request.headers.get("authorization", "")
    return header.removeprefix(_BEARER) if header.startswith(_BEARER) else None
