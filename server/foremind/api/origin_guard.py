"""ASGI middleware that enforces allowed hosts and origins, and implements CORS."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foremind.api.responses import error_response
from foremind.auth.origins import host_allowed, request_origin_allowed
from foremind.domain.errors import ForemindError, InvalidMessage, NotAllowed, NotAuthenticated
from foremind.domain.settings.settings import Settings

# There are no cookies, so credentials need not be allowed: a page of an allowed origin sends a
# token, or the server runs in open mode.
_PREFLIGHT_HEADERS = {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
    # The official clients of other doors send headers of their own. The wildcard is for requests
    # without credentials, and does not include `authorization`.
    "access-control-allow-headers": "authorization, *",
    "access-control-max-age": "600",
}
# If one of these came twice, components that read the first and the last value could disagree.
_SINGLE_HEADERS = ("authorization", "host", "origin", "sec-fetch-site")
_EXPOSED_HEADERS = (
    "allow, content-disposition, retry-after, www-authenticate, x-foremind-context, "
    "x-foremind-recalled, x-foremind-recalled-ids, x-foremind-turn"
)


class OriginGuard:
    """Refuses requests of foreign pages before anything is read or done; answers preflights.

    Every response, errors included, has CORS headers for pages of allowed origins.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse an HTTP request; the gateway checks WebSockets itself."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        origin = origins[0] if len(origins) == 1 else None
        allowed_origin = origin if origin in self._settings.allowed_origins else None

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                response_headers.add_vary_header("origin")
                response_headers.setdefault("x-content-type-options", "nosniff")
                if allowed_origin is not None:
                    response_headers["access-control-allow-origin"] = allowed_origin
                    response_headers["access-control-expose-headers"] = _EXPOSED_HEADERS
            await send(message)

        error = self._check(scope, headers, origin)
        if error is not None:
            await error_response(error)(scope, receive, send_with_cors)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            preflight = Response(status_code=204, headers=_PREFLIGHT_HEADERS)
            await preflight(scope, receive, send_with_cors)
        else:
            await self._app(scope, receive, send_with_cors)

    def _check(self, scope: Scope, headers: Headers, origin: str | None) -> ForemindError | None:
        for name in _SINGLE_HEADERS:
            if len(headers.getlist(name)) > 1:
                return InvalidMessage(f"{name}: expected a single header", param=name)
        host = headers.get("host")
        if not host_allowed(host, self._settings):
            return NotAuthenticated("host: expected a loopback name or address", param="host")
        site = headers.get("sec-fetch-site")
        if request_origin_allowed(
            scope["method"], scope["path"], origin=origin, host=host, site=site,
            settings=self._settings,
        ):  # fmt: skip
            return None
        return NotAllowed(
            "origin: expected this server's own, or one of FOREMIND_ALLOWED_ORIGINS",
            param="origin",
        )
