"""The only place that builds and wires things: what starts inside, stops on the way out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute

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
# What it takes, beside the reply itself, until a reply is stored.
_TO_STORE_S = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Core:
    """The store and the model, without any door: what evaluation and benchmarks need."""

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
    """A whole server, not yet listening."""

    core: Core
    registry: SessionRegistry
    asgi: Starlette


@asynccontextmanager
async def database_url(
    settings: Settings,
    say: Say,
    supervisor: Supervisor | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[str]:
    """Yield the URL of the configured database, running the embedded one where none is."""
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
    """Build everything below the door.

    Raises:
        SetupError: saying what the operator must change.
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
        for each in await migrate(url):
            say(f"Migrated the database: {each.number:04} {each.name}")
        database = await stack.enter_async_context(
            Database.connect(
                url if settings.database_url else as_server(url),
                size=settings.database_pool_size,
                timeout_s=settings.database_timeout_s,
            )
        )
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
            turns=TurnStore(
                database, presence, timedelta(seconds=settings.llm_reply_timeout_s + _TO_STORE_S)
            ),
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
        SetupError: saying what the operator must change.
    """
    check_binding(settings)
    check_files(settings)
    async with core(settings, clock=clock, say=say) as built, AsyncExitStack() as stack:
        await _seed(built, say)
        voices = ChatModels(settings)
        stack.push_async_callback(voices.close)
        await voices.prepare(policy_for(CompanionSettings(), settings).voice)
        authority = Authority(settings, RevocationStore(built.database), built.clock)
        index = await stack.enter_async_context(
            IndexedCandidates(built.memories, settings.index_bytes, built.metrics)
        )
        search = GatedSearch(RankedSearch(index), built.heads)
        held = await stack.enter_async_context(
            LayerCache(built.records, built.embedder.manifest, settings.layers_bytes, built.metrics)
        )
        library = await stack.enter_async_context(
            Library(built.documents, built.embedder, built.clock, built.supervisor)
        )
        forgetter = forgetter_of(built)
        users, relationships = UserStore(built.database), RelationshipStore(built.database)
        eraser = UserEraser(users, relationships, forgetter, built.clock)
        curation = curation_of(built, voices)
        afterwards = await stack.enter_async_context(PostReplyBehaviours(voices, built.metrics))
        uses = await stack.enter_async_context(AccessCounts(built.records, built.supervisor))
        prepared = ContextCache(
            settings.prepared_capacity,
            settings.prepared_bytes,
            settings.prepared_ttl_s,
            built.clock,
        )
        built.metrics.prepared_contexts.set_function(lambda: len(prepared))
        built.metrics.prepared_bytes.set_function(lambda: prepared.bytes_held)
        relationships = RelationshipStore(built.database)
        current = await stack.enter_async_context(
            LiveSettings(built.companions, relationships, built.clock)
        )
        services = SessionServices(
            settings=settings,
            clock=built.clock,
            metrics=built.metrics,
            authority=authority,
            companions=built.companions,
            relationships=relationships,
            current=current,
            turns=built.turns,
            states=StateStore(built.database),
            preparer=ContextBuilder(
                built.embedder, search, held, library, built.clock, built.metrics
            ),
            prepared=prepared,
            index=index,
            held=held,
            library=library,
            curation=curation,
            afterwards=afterwards,
            rememberer=built.rememberer,
            uses=uses,
            voices=voices,
            embedding=built.embedder.manifest.fingerprint,
        )
        registry = await stack.enter_async_context(
            SessionRegistry(
                settings, built.memories, authority, built.clock, built.metrics, built.supervisor
            )
        )
        await stack.enter_async_context(
            NotificationListener(
                built.database.url,
                # The index first: nothing that is told of a version may be given an older one.
                [
                    index.heard,
                    current.heard,
                    prepared.heard,
                    held.heard,
                    library.heard,
                    built.rememberer.heard,
                    voices.heard,
                    cache_erasure.heard,
                    registry.announce,
                ],
                [index.forget, current.forget, held.forget, library.forget, registry.catch_up],
                built.clock,
                built.supervisor,
                built.presence,
            )
        )
        await stack.enter_async_context(
            JobWorker(
                built.database,
                {
                    REMEMBER_TURN: built.rememberer.remember,
                    RATE_TURN: ImportanceRater(voices, built.memories, built.rememberer).rate,
                },
                built.clock,
                built.supervisor,
            )
        )
        await stack.enter_async_context(curation)
        probe = await stack.enter_async_context(
            DatabaseProbe(built.database, built.supervisor, built.clock)
        )
        gateway = Gateway(services, registry)
        entrance = RequestAuthenticator(authority, settings, built.clock)
        transfer = TransferStore(built.database, services.embedding)
        views = RelationshipServices(
            entrance=entrance,
            settings=settings,
            clock=built.clock,
            companions=built.companions,
            relationships=relationships,
            turns=built.turns,
            states=services.states,
            preparer=services.preparer,
            records=built.records,
            library=library,
            curation=curation,
            embedder=built.embedder,
            forgetter=forgetter,
            corrector=corrector_of(built),
            editor=ManualEditor(built.records, built.embedder, built.clock),
            remover=RecordRemover(built.records, CurationStore(built.database), forgetter),
            transfer=transfer,
            exports=SpooledResponses(settings.body_bytes, built.metrics),
            restorer=RelationshipImporter(transfer, built.embedder, built.rememberer),
            current=current,
        )
        http = HttpServices(
            companions=built.companions,
            curation=curation,
            database=built.database,
            readiness=Readiness(
                built.database,
                probe,
                built.embedder,
                built.supervisor,
                registry.is_draining,
                built.clock,
            ),
            metrics=built.metrics,
            entrance=entrance,
            contracts={"asyncapi.json": asyncapi(), "openapi.json": openapi()},
        )
        asgi = Starlette(
            routes=[
                WebSocketRoute("/v1/ws", gateway.serve),
                *routes(
                    http,
                    [
                        *transfer_routes(views),
                        *user_routes(UserServices(views, users, eraser)),
                        *relationship_routes(views),
                        *memory_routes(views),
                        *record_routes(views),
                        *document_routes(views, built.documents),
                        *admin_routes(
                            AdminServices(
                                entrance=entrance,
                                settings=settings,
                                clock=built.clock,
                                companions=built.companions,
                                authority=authority,
                                sessions=registry,
                                current=current,
                            )
                        ),
                    ],
                ),
            ],
            middleware=[Middleware(OriginGuard, settings=settings)],
            exception_handlers={HTTPException: routing_problem},
        )
        asgi.router.default = page()
        asgi.router.redirect_slashes = False
        yield Application(core=built, registry=registry, asgi=asgi)


@asynccontextmanager
async def serving(
    settings: Settings, *, clock: Clock | None = None, say: Say = lambda _: None
) -> AsyncIterator[tuple[Application, int]]:
    """Run a whole server and yield it with its port; on leaving, drain and stop it.

    Raises:
        SetupError: saying what the operator must change.
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
    """Make sure that what the settings name can be read, or written to, before anything starts.

    Raises:
        InvalidFile: naming the setting.
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


def same_matter(built: Core) -> Similarity:
    """Return the cosines from which on two texts are held to speak of the same."""
    manifest = built.embedder.manifest
    return Similarity(calibrated(manifest, TOPIC_COSINE), calibrated(manifest, EPISODE_COSINE))


def forgetter_of(built: Core) -> Eraser:
    """Return what forgets."""
    return Eraser(built.database, built.rememberer, built.embedder, built.clock, same_matter(built))


def corrector_of(built: Core) -> Corrector:
    """Return what corrects."""
    return Corrector(
        built.database, built.embedder, built.rememberer, built.clock, same_matter(built)
    )


def expirer_of(built: Core) -> RetentionEnforcer:
    """Return what lets go of what is past its days."""
    return RetentionEnforcer(built.database, built.rememberer, built.embedder, built.clock)


def curation_of(built: Core, voices: ChatModels) -> BackgroundWorker:
    """Return what does the background work on layers; it works while entered."""
    due = CurationStore(built.database)
    steps = StepRunner(
        due,
        built.records,
        built.embedder,
        voices,
        expirer_of(built),
        forgetter_of(built),
        built.settings,
        built.clock,
        built.metrics,
    )
    states = StepStore(built.database, HELD_FOR)
    return BackgroundWorker(
        due, states, steps, built.settings, built.clock, built.metrics, built.supervisor
    )


async def _warm_up(embedder: EmbeddingService, search: MemorySearch, settings: Settings) -> None:
    """Do once what is slow the first time, so that no player pays for it."""
    text = "What do you remember of the harbour yesterday?"  # the date, too, is slow at first
    vector = await embedder.embed_query(text, Priority.ENTER)
    policy = policy_for(CompanionSettings(), settings).recall
    await search.search(Query(0, text, vector, policy, datetime.now(UTC)))


async def _seed(built: Core, say: Say) -> None:
    """Give a new server a companion worth talking to."""
    if not await built.companions.list():
        example = read_companion(_EXAMPLE)
        await built.companions.put(example)
        say(f"Created the example companion {example.name}.")
