"""Who sends a request, and whether it may send one more."""

from cachetools import LRUCache
from starlette.requests import Request

from foremind.auth.authority import Authority
from foremind.auth.principal import Principal
from foremind.domain.clock import Clock
from foremind.domain.errors import RateLimited
from foremind.domain.rate_limits import TokenBucket
from foremind.domain.settings import Settings
from foremind.storage.database import work_for

_BEARER = "Bearer "
_BURST_S = 4.0
_USERS_KNOWN = 10_000  # whose rates are counted


class RequestAuthenticator:
    """Names the callers of HTTP requests; each may send so many a second.

    What they ask for takes its connections to the database in turn, one for each caller.
    """

    def __init__(self, authority: Authority, settings: Settings, clock: Clock) -> None:
        self._authority = authority
        self._settings = settings
        self._clock = clock
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(_USERS_KNOWN)

    async def caller(self, request: Request) -> Principal:
        """Return who sends a request.

        Raises:
            NotAuthenticated: nobody who is known.
            RateLimited: it sends too many.
        """
        caller = await self._authority.of_request(
            _bearer_token(request), request.query_params.get("user")
        )
        self._count(caller.user_id)
        request.state.connection.identified()
        work_for(caller.user_id)
        return caller

    async def player(self, request: Request) -> Principal | None:
        """Return who sends a request, None where the server runs open and nobody need say.

        Raises:
            NotAuthenticated: nobody who is known.
            RateLimited: it sends too many.
        """
        if self._settings.open_mode:
            self._count("")
            return None
        caller = await self._authority.of_token(_bearer_token(request))
        self._count(caller.user_id)
        request.state.connection.identified()
        return caller

    def _count(self, user_id: str) -> None:
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


def _bearer_token(request: Request) -> str | None:
    header = request.headers.get("authorization", "")
    return header.removeprefix(_BEARER) if header.startswith(_BEARER) else None
