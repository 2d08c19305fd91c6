"""The operations on the server itself, and the page."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import request_response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from foremind.api.operations import Operation
from foremind.api.readiness import Readiness
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import (
    DoneResponse,
    error_response,
    json_response,
    unknown_path,
    with_error_responses,
)
from foremind.auth.principal import Principal
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
    """The services of these routes; `contracts` make documents, by file name."""

    companions: CompanionStore
    background_worker: BackgroundWorker
    readiness: Readiness
    metrics: Metrics
    authenticator: RequestAuthenticator
    contracts: Mapping[str, Callable[[], object]]


class CompanionView(msgspec.Struct):
    """A companion as players see it."""

    slug: str
    name: str
    greeting: str


class ServerEndpoints:
    """Operations on the server itself."""

    def __init__(self, services: HttpServices) -> None:
        self._services = services
        self._contracts: dict[str, bytes] = {}

    @Operation("GET", "/healthz", DoneResponse, scope=None)
    async def healthz(self, _: Request, __: None) -> Response:
        """Check liveness.

        Answers for as long as the process can serve requests, and checks nothing else.
        """
        return json_response({"status": "ok"})

    @Operation("GET", "/readyz", dict[str, str], scope=None, other_responses={503: dict[str, str]})
    async def readyz(self, request: Request, _: None) -> Response:
        """Check readiness.

        Checks everything that a message needs. Each of `model`, `database`, `migrations`,
        `background`, `announcements` and `server`, and where they are configured
        `embedding_server`, `language_model` and `keys`, is `ok` or describes the problem; `status`
        is `ok` with 200, or `unavailable` with 503. A problem that begins with `degraded: ` makes
        the server slower and leaves the status at 200. What is wrong is said to requests from the
        same machine, or with a token of scope `metrics`; others are told that something is. Checks
        that cost time run at most once a second.
        """
        services = self._services
        details = await services.authenticator.may_see_details(request)
        checks = await services.readiness.check(details=details)
        ready = all(map(allows_traffic, checks.values()))
        return json_response(
            {"status": "ok" if ready else "unavailable", **checks}, 200 if ready else 503
        )

    @Operation("GET", "/metrics", str, media_type="text/plain", scope="metrics", caller="anyone")
    async def metrics(self, _: Request, __: Principal | None) -> Response:
        """Get metrics.

        Returns the metrics of this process in the Prometheus text format.
        """
        services = self._services
        services.metrics.tasks.set(len(asyncio.all_tasks()))
        await services.background_worker.update_metrics()
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @Operation("GET", "/v1/companions", list[CompanionView], scope="", caller="anyone")
    async def companions(self, _: Request, principal: Principal | None) -> Response:
        """List companions.

        Returns the companions that the token allows, or all of them in open mode.
        """
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

    @Operation("GET", "/v1/asyncapi.json", dict[str, Any], scope=None)
    async def asyncapi(self, _: Request, __: None) -> Response:
        """Get the WebSocket contract.

        Returns the AsyncAPI 3 document that describes the WebSocket at `/v1/ws`.
        """
        return await self._contract("asyncapi.json")

    @Operation("GET", "/v1/openapi.json", dict[str, Any], scope=None)
    async def openapi(self, _: Request, __: None) -> Response:
        """Get the HTTP contract.

        Returns this document.
        """
        return await self._contract("openapi.json")

    async def _contract(self, name: str) -> Response:
        if name not in self._contracts:
            # Made when somebody asks first, beside the loop, and once: this needs no token.
            make = self._services.contracts[name]
            self._contracts[name] = await asyncio.to_thread(lambda: msgspec.json.encode(make()))
        return Response(self._contracts[name], media_type="application/json")


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
