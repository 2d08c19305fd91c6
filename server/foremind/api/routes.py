"""Every HTTP route. The socket is the gateway's."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, request_response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from foremind.api.contract_enforcement import conforming
from foremind.api.readiness import Readiness
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import answered, json_response, nothing_here, problem_response
from foremind.auth.authority import require
from foremind.background.worker import BackgroundWorker
from foremind.runtime.assets import asset
from foremind.runtime.metrics import Metrics
from foremind.storage.companion_store import CompanionStore
from foremind.storage.database import Database

# The page loads nothing from anywhere else and may be framed by nobody.
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    "accept-ranges": "none",
}


@dataclass(frozen=True, slots=True)
class HttpServices:
    """What the routes need; `contracts` are documents by the name they are served under."""

    companions: CompanionStore
    curation: BackgroundWorker
    database: Database
    readiness: Readiness
    metrics: Metrics
    entrance: RequestAuthenticator
    contracts: Mapping[str, object]


def routes(services: HttpServices, more: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Return the routes, with `more`: each serves only what the contract describes."""
    # Encoded once: anybody may ask for these.
    contracts = {name: msgspec.json.encode(each) for name, each in services.contracts.items()}

    async def healthz(_: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(_: Request) -> Response:
        checks = await services.readiness.check()
        ready = all(check == "ok" for check in checks.values())
        return json_response(
            {"status": "ok" if ready else "unavailable", **checks}, 200 if ready else 503
        )

    async def metrics(request: Request) -> Response:
        caller = await services.entrance.player(request)
        if caller is not None:
            require(caller, "metrics")
        services.metrics.tasks.set(len(asyncio.all_tasks()))
        await services.curation.measure()
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
        encoded = contracts[request.url.path.rpartition("/")[2]]
        return Response(encoded, media_type="application/json")

    own = [
        *(Route(f"/v1/{name}", contract) for name in services.contracts),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/v1/companions", companions),
    ]
    return [conforming(each) if isinstance(each, Route) else each for each in (*own, *more)]


def page() -> ASGIApp:
    """Return what serves the demo page's files, and says of everything else that it is not here."""
    files = StaticFiles(directory=asset("client_demo"), html=True)

    async def file(request: Request) -> Response:
        path = files.get_path(request.scope)
        try:
            if request.method not in ("GET", "HEAD"):
                found = await asyncio.to_thread(files.lookup_path, path)
                raise HTTPException(404 if found[1] is None else 405)
            response = await files.get_response(path, request.scope)
        except ValueError:  # no path that a file could have
            raise HTTPException(404) from None
        response.headers.update(_PAGE_HEADERS)
        return response

    serve = request_response(answered(file))

    async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            answer = problem_response(nothing_here())
            await WebSocket(scope, receive, send).send_denial_response(answer)
            return
        # Files are small, and a part that there is not has an error of another shape.
        whole = [each for each in scope["headers"] if each[0] not in (b"range", b"if-range")]
        await serve({**scope, "headers": whole}, receive, send)

    return elsewhere
