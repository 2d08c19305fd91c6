"""Builds the WebSocket and HTTP routes."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute

from foremind.api.admin_routes import AdminEndpoints, AdminServices, CardEndpoints
from foremind.api.chat_completions import ChatCompletionEndpoints, ChatCompletionServices
from foremind.api.dependencies import EditingServices, RelationshipServices, TransferServices
from foremind.api.document_routes import DocumentEndpoints
from foremind.api.event_routes import EventEndpoints
from foremind.api.json_bodies import SpooledResponses
from foremind.api.mcp_routes import McpEndpoint, McpServices
from foremind.api.mcp_tools import ChargeMessage, ToolServices
from foremind.api.memory_routes import MemoryEndpoints
from foremind.api.openapi import openapi
from foremind.api.operations import routes_of
from foremind.api.origin_guard import OriginGuard
from foremind.api.prompt_routes import PromptEndpoints
from foremind.api.readiness import Readiness
from foremind.api.record_routes import RecordEndpoints
from foremind.api.relationship_routes import RelationshipEndpoints
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import routing_error_response
from foremind.api.server_routes import HttpServices, ServerEndpoints, page
from foremind.api.transfer_routes import TransferEndpoints
from foremind.api.turn_routes import TurnEndpoints, TurnServices
from foremind.api.user_routes import UserEndpoints, UserServices
from foremind.api.world_routes import WorldEndpoints, WorldServices
from foremind.app.core import (
    Core,
    build_corrector,
    build_eraser,
    build_importer,
    build_user_eraser,
    build_world_eraser,
)
from foremind.auth.authority import Authority
from foremind.domain.errors import SetupError
from foremind.gateway.connection import SocketEndpoint
from foremind.gateway.protocol.asyncapi import asyncapi
from foremind.gateway.scenes import Scenes
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import SessionServices
from foremind.gateway.single_turn import SingleTurns
from foremind.gateway.transcript_turns import TranscriptTurns
from foremind.llm.model_probe import ModelProbes
from foremind.memory.erasure.eraser import Eraser
from foremind.memory.manual_edits import ManualEditor, RecordRemover
from foremind.memory.remember import Rememberer
from foremind.runtime.fair_queue import ConnectionQueue
from foremind.storage.background_store import BackgroundStore
from foremind.storage.probe import DatabaseProbe
from foremind.storage.transfer_store import TransferStore
from foremind.worlds.minds import Minds

if TYPE_CHECKING:
    from foremind.api.mcp_server import McpServer


async def start_mcp_server(
    views: RelationshipServices,
    authority: Authority,
    rememberer: Rememberer,
    charge: ChargeMessage,
    stack: AsyncExitStack,
) -> "McpServer | None":
    """Start the MCP server on a stack; return None if it is off.

    Raises:
        SetupError: its SDK is not installed.
    """
    if not views.runtime.settings.mcp:
        return None
    try:
        from foremind.api.mcp_server import McpServer  # noqa: PLC0415 - takes a second
    except ModuleNotFoundError as error:
        raise SetupError(
            f"FOREMIND_MCP needs the module {error.name}: pip install 'foremind[mcp]'"
        ) from None
    server = McpServer(ToolServices(views, authority, rememberer, charge))
    return await stack.enter_async_context(server.running())


# Searches of programs run one at a time, below what is typed; callers take turns.
_MAX_WAITING_SEARCHES = 50  # of one caller
_SEARCH_TIMEOUT_S = 10.0


async def build_asgi(
    components: Core,
    services: SessionServices,
    registry: SessionRegistry,
    turns: SingleTurns,
    probe: DatabaseProbe,
    models: ModelProbes,
    stack: AsyncExitStack,
) -> Starlette:
    """Return the WebSocket and HTTP routes, and the demo page; what serves them is on the stack.

    Raises:
        SetupError: says what the operator must change.
    """
    authenticator = RequestAuthenticator(
        services.authority, services.runtime.settings, components.runtime.clock
    )
    http = HttpServices(
        companions=components.stores.companions,
        background_worker=services.after_reply.background_worker,
        readiness=Readiness(
            components.database,
            probe,
            components.embedder,
            components.runtime.supervisor,
            registry.is_draining,
            lambda: components.bus.health() | services.authority.health() | models.health(),
            components.runtime.clock,
        ),
        metrics=components.runtime.metrics,
        authenticator=authenticator,
        contracts={"asyncapi.json": asyncapi, "openapi.json": openapi},
    )
    eraser = build_eraser(components)
    views = _relationship_services(components, services, authenticator, eraser)
    rememberer = Rememberer(views.stores.turns, components.ingester, components.runtime.clock)
    mcp = await start_mcp_server(views, services.authority, rememberer, turns.charge, stack)
    asgi = Starlette(
        routes=[
            WebSocketRoute("/v1/ws", SocketEndpoint(services, registry).serve),
            *(
                route
                for endpoints in (
                    ServerEndpoints(http),
                    _chat_endpoints(components, services, turns, authenticator),
                    TurnEndpoints(TurnServices(authenticator, turns, registry.scenes)),
                    McpEndpoint(McpServices(mcp)),
                    EventEndpoints(views, rememberer, turns.charge),
                    _world_endpoints(components, views, eraser, registry.scenes),
                    *_resource_endpoints(components, services, registry, views, models),
                )
                for route in routes_of(endpoints, authenticator)
            ),
        ],
        middleware=[Middleware(OriginGuard, settings=services.runtime.settings)],
        exception_handlers={HTTPException: routing_error_response},
    )
    asgi.router.default = page()
    asgi.router.redirect_slashes = False
    return asgi


def _chat_endpoints(
    components: Core,
    services: SessionServices,
    turns: SingleTurns,
    authenticator: RequestAuthenticator,
) -> ChatCompletionEndpoints:
    """Return what clients that know OpenAI's API call."""
    return ChatCompletionEndpoints(
        ChatCompletionServices(
            authenticator=authenticator,
            companions=components.stores.companions,
            transcripts=TranscriptTurns(services, turns, build_eraser(components)),
            clock=components.runtime.clock,
        )
    )


def _world_endpoints(
    components: Core, views: RelationshipServices, eraser: Eraser, scenes: Scenes
) -> WorldEndpoints:
    """Return what game servers call on their worlds."""
    minds = Minds(components.runtime, components.stores, views.context, components.ingester)
    return WorldEndpoints(
        WorldServices(views, minds, build_world_eraser(components, eraser), scenes)
    )


def _resource_endpoints(
    components: Core,
    services: SessionServices,
    registry: SessionRegistry,
    views: RelationshipServices,
    models: ModelProbes,
) -> list[object]:
    """Return what is called on users' and operators' resources."""
    users = components.stores.users
    admin = AdminServices(
        settings=services.runtime.settings,
        clock=components.runtime.clock,
        companions=components.stores.companions,
        authority=services.authority,
        sessions=registry,
        live_settings=services.live_settings,
        models=models,
    )
    return [
        TransferEndpoints(views),
        UserEndpoints(UserServices(views, users, build_user_eraser(components))),
        RelationshipEndpoints(views),
        PromptEndpoints(views),
        MemoryEndpoints(views),
        RecordEndpoints(views),
        DocumentEndpoints(views, components.stores.documents),
        AdminEndpoints(admin),
        CardEndpoints(admin),
    ]


def _relationship_services(
    components: Core,
    services: SessionServices,
    authenticator: RequestAuthenticator,
    eraser: Eraser,
) -> RelationshipServices:
    runtime, stores, embedder = components.runtime, components.stores, components.embedder
    transfer = TransferStore(components.database, embedder.manifest.fingerprint)
    return RelationshipServices(
        runtime=runtime,
        authenticator=authenticator,
        stores=stores,
        live_settings=services.live_settings,
        context=services.context,
        editing=EditingServices(
            eraser=eraser,
            corrector=build_corrector(components),
            editor=ManualEditor(stores.records, embedder, runtime.clock),
            remover=RecordRemover(stores.records, BackgroundStore(components.database), eraser),
        ),
        transfer=TransferServices(
            store=transfer,
            exports=SpooledResponses(runtime.settings.body_bytes, runtime.metrics),
            importer=build_importer(components),
        ),
        background_worker=services.after_reply.background_worker,
        searches=ConnectionQueue(1, 1, _MAX_WAITING_SEARCHES, _SEARCH_TIMEOUT_S),
    )
