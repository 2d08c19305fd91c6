"""Every HTTP route. The socket is the gateway's."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from foremind.assets import asset
from foremind.http.answers import answered, json_response
from foremind.http.entrance import Entrance
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


@dataclass(frozen=True, slots=True)
class HttpServices:
    """What the routes need; `contracts` are documents by the name they are served under."""

    companions: CompanionStore
    database: Database
    readiness: Readiness
    metrics: Metrics
    entrance: Entrance
    contracts: Mapping[str, object]


class Page(StaticFiles):
    """The demo page with headers that keep it to itself."""

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_PAGE_HEADERS)
        return response


def routes(services: HttpServices, more: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Return the routes, with `more` before the catch-all page."""

    async def healthz(_: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(_: Request) -> Response:
        checks = await services.readiness.check()
        ready = all(each == "ok" for each in checks.values())
        return json_response(
            {"status": "ok" if ready else "unavailable", **checks}, 200 if ready else 503
        )

    async def metrics(request: Request) -> Response:
        await services.entrance.player(request)
        services.metrics.tasks.set(len(asyncio.all_tasks()))
        services.metrics.waiting_jobs.set(await services.database.value("waiting_jobs"))
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def companions(request: Request) -> Response:
        caller = await services.entrance.player(request)
        known = await services.companions.list()
        return json_response(
            [
                {"slug": each.slug, "name": each.name, "greeting": each.greeting}
                for each in known
                if caller is None or caller.may_open(each.slug)
            ]
        )

    async def contract(request: Request) -> Response:
        return json_response(services.contracts[request.url.path.rpartition("/")[2]])

    return [
        *(Route(f"/v1/{name}", contract) for name in services.contracts),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", answered(metrics)),
        Route("/v1/companions", answered(companions)),
        *more,
        Mount("/", Page(directory=asset("client_demo"), html=True)),
    ]
