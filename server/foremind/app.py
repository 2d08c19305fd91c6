"""The only place that builds and wires components; what is started last is stopped first."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, WebSocketRoute

from foremind.api.admin_routes import AdminServices, admin_routes
from foremind.api.dependencies import RelationshipServices
from foremind.api.document_routes import document_routes
from foremind.api.memory_routes import memory_routes
from foremind.api.openapi import openapi
from foremind.api.origin_guard import OriginGuard
from foremind.api.readiness import Readiness
from foremind.api.record_routes import record_routes
from foremind.api.relationship_routes import relationship_routes
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import routing_problem
from foremind.api.routes import HttpServices, page, routes
from foremind.api.spooled_bodies import SpooledResponses
from foremind.api.transfer_routes import transfer_routes
from foremind.api.user_routes import UserServices, user_routes
from foremind.auth.authority import Authority, keyring
from foremind.background.manual_edits import ManualEditor
from foremind.background.post_reply import PostReplyBehaviours
from foremind.background.record_removal import RecordRemover
from foremind.background.step_runner import StepRunner
from foremind.background.steps import HELD_FOR
from foremind.background.worker import BackgroundWorker
from foremind.domain.clock import Clock, SystemClock
from foremind.domain.companion import CompanionSettings, read_companion
from foremind.domain.errors import InvalidFile, SetupError
from foremind.domain.policy import policy_for
from foremind.domain.setting_syntax import PREFIX
from foremind.domain.settings import Settings, check_binding
from foremind.gateway.connection import Gateway
from foremind.gateway.live_settings import LiveSettings
from foremind.gateway.protocol.asyncapi import asyncapi
from foremind.gateway.protocol.messages import MAX_ESCAPED_BYTES
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import SessionServices
from foremind.gateway.transport.listener import listening
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.token_counter import load_counter
from foremind.memory import cache_erasure
from foremind.memory.correct import Corrector
from foremind.memory.erase import Eraser
from foremind.memory.erasure_scope import Similarity
from foremind.memory.expiry import RetentionEnforcer
from foremind.memory.import_relationship import RelationshipImporter
from foremind.memory.importance_rating import ImportanceRater
from foremind.memory.ingest import MemoryIngester
from foremind.memory.user_erasure import UserEraser
from foremind.retrieval.access_counts import AccessCounts
from foremind.retrieval.classifiers import TextClassifiers, load_heads
from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.conversion import prepare_model
from foremind.retrieval.embedding.model_registry import find_model
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.layer_cache import LayerCache
from foremind.retrieval.layer_recall import EPISODE_COSINE, TOPIC_COSINE
from foremind.retrieval.search import (
    GatedSearch,
    MemorySearch,
    Query,
    RankedSearch,
    StoredCandidates,
)
from foremind.retrieval.similarity_calibration import calibrated
from foremind.runtime.garbage_collection import FullCollectionPolicy
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor, begin, stop
from foremind.storage.companion_store import CompanionStore
from foremind.storage.curation_store import CurationStore
from foremind.storage.database import Database
from foremind.storage.document_store import DocumentStore
from foremind.storage.embedded_postgres import as_server, embedded_postgres
from foremind.storage.job_queue import RATE_TURN, REMEMBER_TURN, JobWorker
from foremind.storage.memory_store import MemoryStore
from foremind.storage.migrations import migrate
from foremind.storage.notifications import NotificationListener
from foremind.storage.presence import Presence
from foremind.storage.probe import DatabaseProbe
from foremind.storage.record_store import RecordStore
from foremind.storage.relationship_store import RelationshipStore
from foremind.storage.revocation_store import RevocationStore
from foremind.storage.state_store import StateStore
from foremind.storage.step_store import StepStore
from foremind.storage.transfer_store import TransferStore
from foremind.storage.turn_store import TurnStore
from foremind.storage.user_store import UserStore
from foremind.typeahead.context_builder import ContextBuilder
from foremind.typeahead.context_cache import ContextCache

_EXAMPLE = Path(__file__).parent / "examples" / "wren.toml"
# Allowed for a turn on top of the model's own timeout, until its reply is stored.
_STORE_REPLY_S = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Core:
    """Storage, embedding and search without any server: what evaluation and benchmarks need."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    supervisor: Supervisor
    database: Database
    database_url: str
    embedder: EmbeddingService
    companions: CompanionStore
    presence: Presence
    turns: TurnStore
    memories: MemoryStore
    search: MemorySearch
    heads: TextClassifiers | None
    rememberer: MemoryIngester
    records: RecordStore
    documents: DocumentStore


@dataclass(frozen=True, slots=True)
class Application:
    """A whole server that is not listening yet."""

    core: Core
    registry: SessionRegistry
    asgi: Starlette


@dataclass(frozen=True, slots=True)
class _Retrieval:
    """What finds the context of a draft, and caches it."""

    index: IndexedCandidates
    layer_cache: LayerCache
    library: Library
    context_builder: ContextBuilder
    context_cache: ContextCache


@asynccontextmanager
async def database_url(
    settings: Settings,
    say: Say,
    supervisor: Supervisor | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[str]:
    """Yield the URL of the configured database; without one, run the embedded server."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    say("Starting the embedded PostgreSQL ...")
    async with embedded_postgres(settings.data_dir, supervisor, clock) as url:
        yield url


@asynccontextmanager
async def core(
    settings: Settings, *, clock: Clock | None = None, say: Say = lambda _: None
) -> AsyncIterator[Core]:
    """Build the database, the embedding model and the search, and run them.

    Raises:
        SetupError: says what the operator must change.
    """
    clock = clock or SystemClock()
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        manifest = find_model(settings.embedding_model, settings.models_dir)
        model = await asyncio.to_thread(prepare_model, manifest, settings.models_dir, say)
        encoder = begin(asyncio.to_thread(model.encoder), "load-model")
        stack.push_async_callback(stop, encoder)
        supervisor = await stack.enter_async_context(Supervisor(clock, metrics))
        url = await stack.enter_async_context(database_url(settings, say, supervisor, clock))
        database = await _start_database(url, settings, say, stack)
        embedder = await stack.enter_async_context(
            EmbeddingService(
                await encoder, manifest, settings.embedding_queue_size, clock, metrics, supervisor
            )
        )
        memories = MemoryStore(database, manifest.fingerprint)
        await memories.bind_model(manifest.name, manifest.dimension)
        heads = load_heads(manifest)
        search = GatedSearch(RankedSearch(StoredCandidates(memories)), heads)
        await _warm_up(embedder, search, settings)
        presence = Presence()
        claim_duration = timedelta(seconds=settings.llm_reply_timeout_s + _STORE_REPLY_S)
        yield Core(
            settings=settings,
            clock=clock,
            metrics=metrics,
            supervisor=supervisor,
            database=database,
            database_url=url,
            embedder=embedder,
            companions=CompanionStore(database),
            presence=presence,
            turns=TurnStore(database, presence, claim_duration),
            memories=memories,
            search=search,
            heads=heads,
            rememberer=MemoryIngester(memories, embedder, heads, settings, clock, metrics),
            records=RecordStore(database, manifest.fingerprint),
            documents=DocumentStore(database, manifest.fingerprint),
        )


@asynccontextmanager
async def application(
    settings: Settings, *, clock: Clock | None = None, say: Say = lambda _: None
) -> AsyncIterator[Application]:
    """Build a whole server, with its background work running.

    Raises:
        SetupError: says what the operator must change.
    """
    check_binding(settings)
    check_files(settings)
    async with core(settings, clock=clock, say=say) as components, AsyncExitStack() as stack:
        await _create_example_companion(components, say)
        voices = await _start_chat_models(settings, stack)
        authority = Authority(settings, RevocationStore(components.database), components.clock)
        retrieval = await _start_retrieval(components, stack)
        worker = curation_of(components, voices)
        services = await _start_session_services(
            components, authority, voices, retrieval, worker, stack
        )
        registry = await stack.enter_async_context(
            SessionRegistry(
                settings,
                components.memories,
                authority,
                components.clock,
                components.metrics,
                components.supervisor,
            )
        )
        await _start_notifications(components, retrieval, services, registry, stack)
        await _start_jobs(components, voices, stack)
        await stack.enter_async_context(worker)
        probe = await stack.enter_async_context(
            DatabaseProbe(components.database, components.supervisor, components.clock)
        )
        asgi = _build_asgi(components, services, registry, probe)
        yield Application(core=components, registry=registry, asgi=asgi)


@asynccontextmanager
async def serving(
    settings: Settings, *, clock: Clock | None = None, say: Say = lambda _: None
) -> AsyncIterator[tuple[Application, int]]:
    """Run a whole server and yield it with its port; on leaving, drain and stop it.

    Raises:
        SetupError: says what the operator must change.
    """
    async with (
        application(settings, clock=clock, say=say) as app,
        listening(
            app.asgi,
            settings,
            clock=app.core.clock,
            metrics=app.core.metrics,
            most_frame=MAX_ESCAPED_BYTES,
        ) as port,
        FullCollectionPolicy(app.core.supervisor),
    ):
        try:
            yield app, port
        finally:
            await app.registry.drain(settings.drain_s)


def check_files(settings: Settings) -> None:
    """Check that the files and folders that settings name are usable, before anything starts.

    Raises:
        InvalidFile: names the setting.
    """
    checks: dict[str, Callable[[], object]] = {
        "DATA_DIR": lambda: settings.data_dir.mkdir(parents=True, exist_ok=True),
        "AUTH_KEYS": lambda: keyring(settings),
        "LLM_TOKENIZER": lambda: (
            None if settings.llm_tokenizer is None else load_counter(str(settings.llm_tokenizer))
        ),
        "EMBEDDING_MODEL": lambda: find_model(settings.embedding_model, settings.models_dir),
    }
    for name, check in checks.items():
        try:
            check()
        except (SetupError, OSError) as error:
            raise InvalidFile(f"{PREFIX}{name}: {error}") from None


def forgetter_of(components: Core) -> Eraser:
    """Return what erases memories, transcripts and records on request."""
    return Eraser(
        components.database,
        components.rememberer,
        components.embedder,
        components.clock,
        _similarity_thresholds(components),
    )


def corrector_of(components: Core) -> Corrector:
    """Return what corrects memories."""
    return Corrector(
        components.database,
        components.embedder,
        components.rememberer,
        components.clock,
        _similarity_thresholds(components),
    )


def expirer_of(components: Core) -> RetentionEnforcer:
    """Return what removes expired data."""
    return RetentionEnforcer(
        components.database, components.rememberer, components.embedder, components.clock
    )


def curation_of(components: Core, voices: ChatModels) -> BackgroundWorker:
    """Return the worker that maintains layers; it runs while it is entered."""
    curation_store = CurationStore(components.database)
    runner = StepRunner(
        curation_store,
        components.records,
        components.embedder,
        voices,
        expirer_of(components),
        forgetter_of(components),
        components.settings,
        components.clock,
        components.metrics,
    )
    return BackgroundWorker(
        curation_store,
        StepStore(components.database, HELD_FOR),
        runner,
        components.settings,
        components.clock,
        components.metrics,
        components.supervisor,
    )


def _similarity_thresholds(components: Core) -> Similarity:
    """Return the cosines from which two texts count as being about the same."""
    manifest = components.embedder.manifest
    return Similarity(calibrated(manifest, TOPIC_COSINE), calibrated(manifest, EPISODE_COSINE))


async def _start_database(
    url: str, settings: Settings, say: Say, stack: AsyncExitStack
) -> Database:
    """Migrate the database, and open the connection pool."""
    for migration in await migrate(url):
        say(f"Migrated the database: {migration.number:04} {migration.name}")
    return await stack.enter_async_context(
        Database.connect(
            url if settings.database_url else as_server(url),
            size=settings.database_pool_size,
            timeout_s=settings.database_timeout_s,
        )
    )


async def _warm_up(embedder: EmbeddingService, search: MemorySearch, settings: Settings) -> None:
    """Run one search, so that no player pays for what is slow the first time."""
    text = "What do you remember of the harbour yesterday?"  # parsing a date is slow at first, too
    vector = await embedder.embed_query(text, Priority.ENTER)
    policy = policy_for(CompanionSettings(), settings).recall
    await search.search(Query(0, text, vector, policy, datetime.now(UTC)))


async def _create_example_companion(components: Core, say: Say) -> None:
    """Give a new server a companion to talk to."""
    if not await components.companions.list():
        example = read_companion(_EXAMPLE)
        await components.companions.put(example)
        say(f"Created the example companion {example.name}.")


async def _start_chat_models(settings: Settings, stack: AsyncExitStack) -> ChatModels:
    voices = ChatModels(settings)
    stack.push_async_callback(voices.close)
    await voices.prepare(policy_for(CompanionSettings(), settings).voice)
    return voices


async def _start_retrieval(components: Core, stack: AsyncExitStack) -> _Retrieval:
    settings, clock, metrics = components.settings, components.clock, components.metrics
    index = await stack.enter_async_context(
        IndexedCandidates(components.memories, settings.index_bytes, metrics)
    )
    layer_cache = await stack.enter_async_context(
        LayerCache(components.records, components.embedder.manifest, settings.layers_bytes, metrics)
    )
    library = await stack.enter_async_context(
        Library(components.documents, components.embedder, clock, components.supervisor)
    )
    search = GatedSearch(RankedSearch(index), components.heads)
    context_cache = ContextCache(
        settings.prepared_capacity, settings.prepared_bytes, settings.prepared_ttl_s, clock
    )
    metrics.prepared_contexts.set_function(lambda: len(context_cache))
    metrics.prepared_bytes.set_function(lambda: context_cache.bytes_held)
    return _Retrieval(
        index=index,
        layer_cache=layer_cache,
        library=library,
        context_builder=ContextBuilder(
            components.embedder, search, layer_cache, library, clock, metrics
        ),
        context_cache=context_cache,
    )


async def _start_session_services(
    components: Core,
    authority: Authority,
    voices: ChatModels,
    retrieval: _Retrieval,
    worker: BackgroundWorker,
    stack: AsyncExitStack,
) -> SessionServices:
    afterwards = await stack.enter_async_context(PostReplyBehaviours(voices, components.metrics))
    access_counts = await stack.enter_async_context(
        AccessCounts(components.records, components.supervisor)
    )
    relationships = RelationshipStore(components.database)
    live_settings = await stack.enter_async_context(
        LiveSettings(components.companions, relationships, components.clock)
    )
    return SessionServices(
        settings=components.settings,
        clock=components.clock,
        metrics=components.metrics,
        authority=authority,
        companions=components.companions,
        relationships=relationships,
        current=live_settings,
        turns=components.turns,
        states=StateStore(components.database),
        preparer=retrieval.context_builder,
        prepared=retrieval.context_cache,
        index=retrieval.index,
        held=retrieval.layer_cache,
        library=retrieval.library,
        curation=worker,
        afterwards=afterwards,
        rememberer=components.rememberer,
        uses=access_counts,
        voices=voices,
        embedding=components.embedder.manifest.fingerprint,
    )


async def _start_notifications(
    components: Core,
    retrieval: _Retrieval,
    services: SessionServices,
    registry: SessionRegistry,
    stack: AsyncExitStack,
) -> None:
    """Listen to what other processes announce."""
    live_settings = services.current
    await stack.enter_async_context(
        NotificationListener(
            components.database.url,
            # The index first: no listener that learns of a version may be served an older one.
            [
                retrieval.index.heard,
                live_settings.heard,
                retrieval.context_cache.heard,
                retrieval.layer_cache.heard,
                retrieval.library.heard,
                components.rememberer.heard,
                services.voices.heard,
                cache_erasure.heard,
                registry.announce,
            ],
            [
                retrieval.index.forget,
                live_settings.forget,
                retrieval.layer_cache.forget,
                retrieval.library.forget,
                registry.catch_up,
            ],
            components.clock,
            components.supervisor,
            components.presence,
        )
    )


async def _start_jobs(components: Core, voices: ChatModels, stack: AsyncExitStack) -> None:
    """Run the durable jobs of stored turns."""
    rater = ImportanceRater(voices, components.memories, components.rememberer)
    await stack.enter_async_context(
        JobWorker(
            components.database,
            {REMEMBER_TURN: components.rememberer.remember, RATE_TURN: rater.rate},
            components.clock,
            components.supervisor,
        )
    )


def _build_asgi(
    components: Core, services: SessionServices, registry: SessionRegistry, probe: DatabaseProbe
) -> Starlette:
    """Return the WebSocket and HTTP routes, and the demo page."""
    entrance = RequestAuthenticator(services.authority, services.settings, components.clock)
    http = HttpServices(
        companions=components.companions,
        curation=services.curation,
        database=components.database,
        readiness=Readiness(
            components.database,
            probe,
            components.embedder,
            components.supervisor,
            registry.is_draining,
            components.clock,
        ),
        metrics=components.metrics,
        entrance=entrance,
        contracts={"asyncapi.json": asyncapi(), "openapi.json": openapi()},
    )
    asgi = Starlette(
        routes=[
            WebSocketRoute("/v1/ws", Gateway(services, registry).serve),
            *routes(http, _resource_routes(components, services, registry, entrance)),
        ],
        middleware=[Middleware(OriginGuard, settings=services.settings)],
        exception_handlers={HTTPException: routing_problem},
    )
    asgi.router.default = page()
    asgi.router.redirect_slashes = False
    return asgi


def _resource_routes(
    components: Core,
    services: SessionServices,
    registry: SessionRegistry,
    entrance: RequestAuthenticator,
) -> list[BaseRoute]:
    """Return the routes of users' and operators' resources."""
    eraser = forgetter_of(components)
    views = _relationship_services(components, services, entrance, eraser)
    users = UserStore(components.database)
    user_eraser = UserEraser(users, services.relationships, eraser, components.clock)
    return [
        *transfer_routes(views),
        *user_routes(UserServices(views, users, user_eraser)),
        *relationship_routes(views),
        *memory_routes(views),
        *record_routes(views),
        *document_routes(views, components.documents),
        *admin_routes(
            AdminServices(
                entrance=entrance,
                settings=services.settings,
                clock=components.clock,
                companions=components.companions,
                authority=services.authority,
                sessions=registry,
                current=services.current,
            )
        ),
    ]


def _relationship_services(
    components: Core,
    services: SessionServices,
    entrance: RequestAuthenticator,
    eraser: Eraser,
) -> RelationshipServices:
    transfer = TransferStore(components.database, components.embedder.manifest.fingerprint)
    return RelationshipServices(
        entrance=entrance,
        settings=services.settings,
        clock=components.clock,
        companions=components.companions,
        relationships=services.relationships,
        turns=components.turns,
        states=services.states,
        preparer=services.preparer,
        records=components.records,
        library=services.library,
        curation=services.curation,
        embedder=components.embedder,
        forgetter=eraser,
        corrector=corrector_of(components),
        editor=ManualEditor(components.records, components.embedder, components.clock),
        remover=RecordRemover(components.records, CurationStore(components.database), eraser),
        transfer=transfer,
        exports=SpooledResponses(services.settings.body_bytes, components.metrics),
        restorer=RelationshipImporter(transfer, components.embedder, components.rememberer),
        current=services.current,
    )
