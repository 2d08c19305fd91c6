"""Every HTTP route. The socket is the gateway's."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from foremind.assets import asset
from foremind.errors import ForemindError, NotAuthenticated
from foremind.http.readiness import Readiness
from foremind.metrics import Metrics
from foremind.storage.companions import CompanionStore
from foremind.storage.database import Database

# The page loads nothing from anywhere else and may be framed by nobody.
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_BEARER = "Bearer "


@dataclass(frozen=True, slots=True)
class HttpServices:
    """What the routes need.

    `may_open` returns which companions the bearer of a token may open, by slug; it raises
    NotAuthenticated. With `open_mode`, no token is asked for.
    """

    companions: CompanionStore
    database: Database
    readiness: Readiness
    metrics: Metrics
    open_mode: bool
    may_open: Callable[[str | None], Callable[[str], bool]]


class Page(StaticFiles):
    """The demo page with headers that keep it to itself."""

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_PAGE_HEADERS)
        return response


def routes(services: HttpServices) -> list[BaseRoute]:
    """Return the routes, the catch-all page last."""

    async def healthz(_: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(_: Request) -> Response:
        checks = await services.readiness.check()
        ready = all(each == "ok" for each in checks.values())
        return _json({"status": "ok" if ready else "unavailable", **checks}, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        if not services.open_mode:
            services.may_open(_token(request))
        services.metrics.waiting_jobs.set(await services.database.value("waiting_jobs"))
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def companions(request: Request) -> Response:
        allowed = (lambda _: True) if services.open_mode else services.may_open(_token(request))
        known = await services.companions.list()
        return _json(
            [
                {"slug": each.slug, "name": each.name, "greeting": each.greeting}
                for each in known
                if allowed(each.slug)
            ]
        )

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", _guarded(metrics)),
        Route("/v1/companions", _guarded(companions)),
        Mount("/", Page(directory=asset("client_demo"), html=True)),
    ]


def _token(request: Request) -> str | None:
    header = request.headers.get("authorization", "")
    return header.removeprefix(_BEARER) if header.startswith(_BEARER) else None


def _guarded(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Answer Foremind's own errors as JSON with a fitting status."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except NotAuthenticated as error:
            return _json(_body(error), 401, {"www-authenticate": "Bearer"})
        except ForemindError as error:
            return _json(_body(error), 503 if error.retryable else 400)

    return guarded


def _body(error: ForemindError) -> dict[str, object]:
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "param": error.param,
            "retryable": error.retryable,
        }
    }


def _json(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
