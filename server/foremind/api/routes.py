"""All HTTP routes; the WebSocket route is the gateway's."""

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

from foremind.api.contract_enforcement import enforce_contract
from foremind.api.readiness import Readiness
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import (
    error_response,
    json_response,
    unknown_path,
    with_error_responses,
)
from foremind.auth.authority import require_scope
from foremind.background.worker import BackgroundWorker
from foremind.domain.health import allows_traffic
from foremind.domain.user import NO_NAME
from foremind.llm.prompt.character import greeting_of
from foremind.runtime.assets import asset
from foremind.runtime.metrics import Metrics
from foremind.storage.companion_store import CompanionStore

# The page loads nothing from other origins, and no page may frame it.
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    "accept-ranges": "none",
}


@dataclass(frozen=True, slots=True)
class HttpServices:
    """The services of these routes; `contracts` are documents by file name."""

    companions: CompanionStore
    background_worker: BackgroundWorker
    readiness: Readiness
    metrics: Metrics
    authenticator: RequestAuthenticator
    contracts: Mapping[str, object]


class _ServerEndpoints:
    def __init__(self, services: HttpServices) -> None:
        self._services = services
        # Encoded once, because these requests need no token.
        self._contracts = {
            name: msgspec.json.encode(document) for name, document in services.contracts.items()
        }

    async def healthz(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        checks = await self._services.readiness.check()
        ready = all(map(allows_traffic, checks.values()))
        return json_response(
            {"status": "ok" if ready else "unavailable", **checks}, 200 if ready else 503
        )

    async def metrics(self, request: Request) -> Response:
        services = self._services
        principal = await services.authenticator.authenticate_unless_open(request)
        if principal is not None:
            require_scope(principal, "metrics")
        services.metrics.tasks.set(len(asyncio.all_tasks()))
        await services.background_worker.update_metrics()
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def companions(self, request: Request) -> Response:
        principal = await self._services.authenticator.authenticate_unless_open(request)
        user_name = NO_NAME if principal is None else principal.name
        companions = await self._services.companions.list()
        return json_response(
            [
                {
                    "slug": companion.slug,
                    "name": companion.name,
                    "greeting": greeting_of(companion, 0, user_name, companion.slug),
                }
                for companion in companions
                if principal is None or principal.may_open(companion.slug)
            ]
        )

    async def contract(self, request: Request) -> Response:
        encoded = self._contracts[request.url.path.rpartition("/")[2]]
        return Response(encoded, media_type="application/json")


def routes(services: HttpServices, resource_routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Return all routes, each of which serves only what the contract describes."""
    endpoints = _ServerEndpoints(services)
    server_routes = [
        *(Route(f"/v1/{name}", endpoints.contract) for name in services.contracts),
        Route("/healthz", endpoints.healthz),
        Route("/readyz", endpoints.readyz),
        Route("/metrics", endpoints.metrics),
        Route("/v1/companions", endpoints.companions),
    ]
    return [
        enforce_contract(route) if isinstance(route, Route) else route
        for route in (*server_routes, *resource_routes)
    ]


def page() -> ASGIApp:
    """Return the fallback app: it serves the demo page's files, and 404 for anything else.

    Among them is the JavaScript client, of which the page has no copy.
    """
    files = StaticFiles(directory=asset("client_demo"), html=True)
    files.all_directories.append(asset("clients/javascript/lib"))

    async def serve_file(request: Request) -> Response:
        path = files.get_path(request.scope)
        try:
            if request.method not in ("GET", "HEAD"):
                _, stat = await asyncio.to_thread(files.lookup_path, path)
                raise HTTPException(404 if stat is None else 405)
            response = await files.get_response(path, request.scope)
        except ValueError:  # not a valid file name
            raise HTTPException(404) from None
        response.headers.update(_PAGE_HEADERS)
        return response

    serve = request_response(with_error_responses(serve_file))

    async def fallback(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            response = error_response(unknown_path())
            await WebSocket(scope, receive, send).send_denial_response(response)
            return
        # No partial responses: files are small, and Starlette's range errors are not JSON.
        headers = [
            header for header in scope["headers"] if header[0] not in (b"range", b"if-range")
        ]
        await serve({**scope, "headers": headers}, receive, send)

    return fallback
