"""Stands before every HTTP request: which pages may ask, and what browsers are told of that."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foremind.api.responses import problem_response
from foremind.auth.origins import host_allowed, page_may_ask
from foremind.domain.errors import ForemindError, InvalidMessage, NotAllowed, NotAuthenticated
from foremind.domain.settings import Settings

# A page of an allowed origin may use everything that this server has: it shows a token for it, or
# the server runs open. There are no cookies, so credentials need not be allowed.
_PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}
# Two of one of these, and who reads the first would decide otherwise than who reads the last.
_ONCE = ("authorization", "host", "origin", "sec-fetch-site")
_EXPOSED = "allow, content-disposition, retry-after, www-authenticate"


class OriginGuard:
    """Refuses what a foreign page asks for, before anything is read or done; answers preflights.

    Every answer, an error too, tells a page of an allowed origin that it may read it (CORS).
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it; WebSockets are the gateway's."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        origin = origins[0] if len(origins) == 1 else None
        told = origin if origin in self._settings.allowed_origins else None

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.add_vary_header("origin")
                answer.setdefault("x-content-type-options", "nosniff")
                if told is not None:
                    answer["access-control-allow-origin"] = told
                    answer["access-control-expose-headers"] = _EXPOSED
            await send(message)

        problem = self._problem(scope, headers, origin)
        if problem is not None:
            await problem_response(problem)(scope, receive, sending)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)

    def _problem(self, scope: Scope, headers: Headers, origin: str | None) -> ForemindError | None:
        for name in _ONCE:
            if len(headers.getlist(name)) > 1:
                return InvalidMessage(f"{name}: expected one", param=name)
        host = headers.get("host")
        if not host_allowed(host, self._settings):
            return NotAuthenticated("host: expected a loopback name", param="host")
        site = headers.get("sec-fetch-site")
        if page_may_ask(
            scope["method"], scope["path"], origin=origin, host=host, site=site,
            settings=self._settings,
        ):  # fmt: skip
            return None
        return NotAllowed(
            "origin: expected this server's own, or one of FOREMIND_ALLOWED_ORIGINS",
            param="origin",
        )
