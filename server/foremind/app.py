"""The only place that builds and wires things: what starts inside, stops on the way out."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from foremind.clock import Clock, SystemClock
from foremind.companions import CompanionSettings, read_companion
from foremind.curation.afterwards import Afterwards
from foremind.curation.by_hand import Editor
from foremind.curation.worker import Curation
from foremind.embedding.prepare import prepare_model
from foremind.embedding.queue import Priority
from foremind.embedding.registry import find_model
from foremind.embedding.service import EmbeddingService
from foremind.gateway.connection import Gateway
from foremind.gateway.contract import asyncapi
from foremind.gateway.messages import MAX_FRAME_BYTES
from foremind.gateway.protocol import ForemindProtocol
from foremind.gateway.registry import SessionRegistry
from foremind.gateway.services import Services
from foremind.generation.rating import Rater
from foremind.generation.voices import Voices
from foremind.http.admin import AdminServices, admin_routes
from foremind.http.callers import RelationshipServices
from foremind.http.contract import openapi
from foremind.http.documents import document_routes
from foremind.http.entrance import Entrance
from foremind.http.memories import memory_routes
from foremind.http.readiness import Readiness
from foremind.http.records import record_routes
from foremind.http.relationships import relationship_routes
from foremind.http.routes import HttpServices, routes
from foremind.http.server import listening
from foremind.http.transfer import transfer_routes
from foremind.identity.authority import Authority
from foremind.layers.held import HeldLayers
from foremind.layers.library import Library
from foremind.memory.correct import Corrector
from foremind.memory.forget import Forgetter
from foremind.memory.heads import Heads, load_heads
from foremind.memory.indexed import IndexedCandidates
from foremind.memory.remember import Rememberer
from foremind.memory.restore import Restorer
from foremind.memory.search import GatedSearch, MemorySearch, Query, RankedSearch, StoredCandidates
from foremind.metrics import Metrics
from foremind.policies import policy_for
from foremind.settings import Settings, check_binding
from foremind.storage.companions import CompanionStore
from foremind.storage.curation import CurationStore
from foremind.storage.database import Database
from foremind.storage.documents import DocumentStore
from foremind.storage.embedded import as_server, embedded_postgres
from foremind.storage.jobs import RATE_TURN, REMEMBER_TURN, JobWorker
from foremind.storage.memories import MemoryStore
from foremind.storage.migrations import migrate
from foremind.storage.notifications import MemoryListener
from foremind.storage.record_store import RecordStore
from foremind.storage.relationships import RelationshipStore
from foremind.storage.revocations import RevocationStore
from foremind.storage.transfer import TransferStore
from foremind.storage.turns import TurnStore
from foremind.typeahead.prepare import Preparer
from foremind.typeahead.prepared import PreparedCache

_EXAMPLE = Path(__file__).parent / "examples" / "wren.toml"
# Collections of the middle generation between two of everything that sessions hold (10 by default):
# each of those stops everybody, by 30 to 60 ms with 150 sessions open.
_SELDOM = 50

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Core:
    """The store and the model, without any door: what evaluation and benchmarks need."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    database: Database
    database_url: str
    embedder: EmbeddingService
    companions: CompanionStore
    turns: TurnStore
    memories: MemoryStore
    search: MemorySearch
    heads: Heads | None
    rememberer: Rememberer
    records: RecordStore
    documents: DocumentStore


@dataclass(frozen=True, slots=True)
class Application:
    """A whole server, not yet listening."""

    core: Core
    registry: SessionRegistry
    asgi: Starlette


@asynccontextmanager
async def database_url(settings: Settings, say: Say) -> AsyncIterator[str]:
    """Yield the URL of the configured database, running the embedded one where none is."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    say("Starting the embedded PostgreSQL ...")
    async with embedded_postgres(settings.data_dir) as url:
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
        encoder = asyncio.create_task(asyncio.to_thread(model.encoder))
        url = await stack.enter_async_context(database_url(settings, say))
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
            EmbeddingService(await encoder, manifest, settings.embedding_queue_size, clock, metrics)
        )
        memories = MemoryStore(database, manifest.fingerprint)
        await memories.bind_model(manifest.name, manifest.dimension)
        heads = load_heads(manifest)
        search = GatedSearch(RankedSearch(StoredCandidates(memories)), heads)
        await _warm_up(embedder, search, settings)
        yield Core(
            settings=settings,
            clock=clock,
            metrics=metrics,
            database=database,
            database_url=url,
            embedder=embedder,
            companions=CompanionStore(database),
            turns=TurnStore(database),
            memories=memories,
            search=search,
            heads=heads,
            rememberer=Rememberer(memories, embedder, heads, settings, clock, metrics),
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
    async with core(settings, clock=clock, say=say) as built, AsyncExitStack() as stack:
        await _seed(built, say)
        voices = Voices(settings)
        stack.push_async_callback(voices.close)
        revocations = RevocationStore(built.database)
        authority = Authority(settings, revocations, built.clock)
        index = await stack.enter_async_context(
            IndexedCandidates(built.memories, settings.index_bytes, built.metrics)
        )
        search = GatedSearch(RankedSearch(index), built.heads)
        held = await stack.enter_async_context(
            HeldLayers(built.records, built.embedder.manifest, settings.layers_bytes, built.metrics)
        )
        library = await stack.enter_async_context(
            Library(built.documents, built.embedder, built.clock)
        )
        curation = curation_of(built, voices)
        afterwards = await stack.enter_async_context(Afterwards(voices, built.metrics))
        prepared = PreparedCache(settings.prepared_capacity, settings.prepared_ttl_s, built.clock)
        services = Services(
            settings=settings,
            clock=built.clock,
            metrics=built.metrics,
            authority=authority,
            companions=built.companions,
            turns=built.turns,
            preparer=Preparer(built.embedder, search, held, library, built.clock, built.metrics),
            prepared=prepared,
            index=index,
            held=held,
            library=library,
            curation=curation,
            afterwards=afterwards,
            rememberer=built.rememberer,
            voices=voices,
            embedding=built.embedder.manifest.fingerprint,
        )
        registry = await stack.enter_async_context(
            SessionRegistry(settings, built.memories, authority, built.clock, built.metrics)
        )
        await stack.enter_async_context(
            MemoryListener(
                built.database.url,
                # The index first: nothing that is told of a version may be given an older one.
                [
                    index.heard,
                    prepared.heard,
                    held.heard,
                    library.heard,
                    built.rememberer.heard,
                    registry.announce,
                ],
                [index.forget, held.forget, library.forget, registry.catch_up],
                built.clock,
            )
        )
        await stack.enter_async_context(
            JobWorker(
                built.database,
                {
                    REMEMBER_TURN: built.rememberer.remember,
                    RATE_TURN: Rater(voices, built.memories, built.rememberer).rate,
                },
                built.clock,
            )
        )
        await stack.enter_async_context(curation)
        gateway = Gateway(services, registry)
        entrance = Entrance(authority, settings, built.clock)
        transfer = TransferStore(built.database, services.embedding)
        views = RelationshipServices(
            entrance=entrance,
            settings=settings,
            clock=built.clock,
            companions=built.companions,
            relationships=RelationshipStore(built.database),
            turns=built.turns,
            preparer=services.preparer,
            records=built.records,
            held=held,
            library=library,
            curation=curation,
            embedder=built.embedder,
            forgetter=Forgetter(built.database, built.rememberer, built.clock),
            corrector=Corrector(built.database, built.embedder, built.rememberer, built.clock),
            editor=Editor(built.records, built.embedder, built.clock),
            transfer=transfer,
            restorer=Restorer(transfer, built.embedder, built.rememberer),
        )
        http = HttpServices(
            companions=built.companions,
            database=built.database,
            readiness=Readiness(built.database, built.embedder),
            metrics=built.metrics,
            entrance=entrance,
            contracts={"asyncapi.json": asyncapi(), "openapi.json": openapi()},
        )
        yield Application(
            core=built,
            registry=registry,
            asgi=Starlette(
                routes=[
                    WebSocketRoute("/v1/ws", gateway.serve),
                    *routes(
                        http,
                        [
                            *transfer_routes(views),
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
                                    revocations=revocations,
                                    sessions=registry,
                                )
                            ),
                        ],
                    ),
                ]
            ),
        )


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
        listening(app.asgi, settings, ForemindProtocol, MAX_FRAME_BYTES) as port,
    ):
        # What is there by now stays; going through it takes the collector, and all players, 70 ms.
        gc.freeze()
        usual = gc.get_threshold()
        gc.set_threshold(*usual[:2], _SELDOM)
        try:
            yield app, port
        finally:
            await app.registry.drain(settings.drain_s)
            gc.set_threshold(*usual)
            gc.unfreeze()


def curation_of(built: Core, voices: Voices) -> Curation:
    """Return what does the background work on layers; it works while entered."""
    return Curation(
        CurationStore(built.database),
        built.records,
        built.embedder,
        voices,
        Forgetter(built.database, built.rememberer, built.clock),
        built.settings,
        built.clock,
        built.metrics,
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
        example = read_companion(_EXAMPLE, built.settings)
        await built.companions.put(example)
        say(f"Created the example companion {example.name}.")
