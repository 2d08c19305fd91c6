"""What every process of Foremind is built from, and what changes memories. No server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from foremind.background.step_definitions import HELD_AT_LEAST, STEPS_BY_NAME
from foremind.background.step_runner import StepRunner
from foremind.background.worker import BackgroundWorker
from foremind.cluster.announcement_bus import AnnouncementBus, PostgresBus
from foremind.domain.clock import Clock, SystemClock
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.llm.model_selection import ChatModels
from foremind.memory.correct import Corrector
from foremind.memory.erasure.eraser import Eraser, UserEraser
from foremind.memory.erasure.scope import SimilarityThresholds
from foremind.memory.expiry import RetentionEnforcer
from foremind.memory.import_relationship import RelationshipImporter
from foremind.memory.importance_rating import ImportanceRater
from foremind.memory.ingest import MemoryIngester
from foremind.memory.profile import facts_in
from foremind.memory.scoring import score_significance
from foremind.retrieval.classifiers import TEXT_FEATURES, TextClassifiers
from foremind.retrieval.embedding.remote_backend import (
    EmbeddingClient,
    EmbeddingEndpoint,
    RemoteBackend,
)
from foremind.retrieval.embedding.service import (
    EmbeddingBackend,
    EmbeddingService,
    Encoder,
    LocalBackend,
    Priority,
)
from foremind.retrieval.relationship_layers import MIN_EPISODE_COSINE, MIN_TOPIC_COSINE
from foremind.retrieval.search import (
    GatedSearch,
    MemorySearch,
    Query,
    RankedSearch,
    StoredCandidates,
)
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor
from foremind.storage.background_store import BackgroundStore, StepStore
from foremind.storage.database import Database
from foremind.storage.embedded_postgres import EmbeddedPostgres, as_server, embedded_postgres
from foremind.storage.migrations import migrate
from foremind.storage.model_binding import bind_model, model_to_use
from foremind.storage.quotas import UserQuota
from foremind.storage.stores import Stores
from foremind.storage.transfer_store import TransferStore
from foremind.text import time_words
from foremind.worlds.forgetting import WorldEraser
from foremind_models import (
    Manifest,
    calibrated_model,
    calibrated_passage_cosine,
    find_model,
    ready_model,
)


async def embedding_backend(
    encoder: Encoder, manifest: Manifest, runtime: RuntimeServices
) -> EmbeddingBackend:
    """Return the configured backend; the caller closes it.

    Raises:
        ModelMismatch: the embeddings server has another model than this one.
    """
    settings = runtime.settings
    local = LocalBackend(encoder)
    if not settings.embedding_url:
        return local
    key = settings.embedding_key
    endpoint = EmbeddingEndpoint(
        settings.embedding_url,
        None if key is None else key.reveal(),
        settings.embedding_server_model or manifest.name,
        settings.embedding_timeout_s,
        settings.embedding_connections,
    )
    client = EmbeddingClient(endpoint, manifest.dimension)
    backend = RemoteBackend(client, local, runtime.clock, runtime.metrics, runtime.supervisor)
    return await backend.start()


@asynccontextmanager
async def announcing_database(
    url: str, size: int, runtime: RuntimeServices
) -> AsyncIterator[tuple[Database, AnnouncementBus]]:
    """Open a pool of at most `size` connections, and what carries its announcements.

    Raises:
        InvalidFile: the credentials file of NATS cannot be used.
        DatabaseUnsuitable: row-level security does not apply to this login.
    """
    settings, clock, metrics = runtime.settings, runtime.clock, runtime.metrics
    timeout_s = settings.database_timeout_s
    if settings.nats_url is None:
        bus = PostgresBus(url, clock, metrics, runtime.supervisor)
        async with Database.connect(url, size=size, timeout_s=timeout_s, publisher=bus) as database:
            yield database, bus
        return
    from foremind.cluster.nats_bus import NatsAddress, NatsBus  # noqa: PLC0415 - rare, and slow

    async def subject() -> str:
        # One subject per database: identifiers mean nothing in another.
        identity = await database.value("database_identity")
        return f"foremind.{identity}.announcements"

    address = NatsAddress(settings.nats_url.reveal(), settings.nats_credentials)
    nats = NatsBus(address, subject, clock, metrics, runtime.supervisor)
    async with (
        Database.connect(url, size=size, timeout_s=timeout_s, publisher=nats) as database,
        nats,
    ):
        yield database, nats


# Allowed for a turn on top of the model's own timeout, until its reply is stored.
_STORE_REPLY_S = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Core:
    """Storage, embedding and search. `database_url` is the owner's, for migrations and seeding."""

    runtime: RuntimeServices
    database: Database
    database_url: str
    bus: AnnouncementBus
    stores: Stores
    embedder: EmbeddingService
    classifiers: TextClassifiers | None
    search: MemorySearch
    ingester: MemoryIngester


@asynccontextmanager
async def database_url(
    settings: Settings,
    say: Say,
    supervisor: Supervisor | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[str]:
    """Yield the URL of the configured database; without one, run the embedded server."""
    if settings.database_url is not None:
        yield settings.database_url.reveal()
        return
    embedded = EmbeddedPostgres(settings.data_dir)
    if not embedded.running():  # a server's serves commands, too
        begin_with = "Starting the" if embedded.folder.exists() else "Creating an"
        say(f"{begin_with} embedded PostgreSQL in {settings.data_dir.absolute()} ...")
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
        supervisor = await stack.enter_async_context(Supervisor(clock, metrics))
        url = await stack.enter_async_context(database_url(settings, say, supervisor, clock))
        runtime = RuntimeServices(settings, clock, metrics, supervisor)
        for migration in await migrate(url):
            say(f"Migrated the database: {migration.number:04} {migration.name}")
        database, bus = await stack.enter_async_context(
            announcing_database(
                url if settings.database_url else as_server(url),
                settings.database_pool_size,
                runtime,
            )
        )
        name = await model_to_use(database, settings.embedding_model)
        manifest = find_model(name, settings.models_dir)
        model = await asyncio.to_thread(
            ready_model, manifest, settings.models_dir, TEXT_FEATURES, say
        )
        calibrated = calibrated_model(manifest, settings.models_dir, TEXT_FEATURES)
        manifest, weights = calibrated.manifest, calibrated.classifiers
        classifiers = None if weights is None else TextClassifiers(weights)
        _warn_of_no_calibration(manifest, say)
        encoder = await asyncio.to_thread(model.encoder)
        embedder = await stack.enter_async_context(
            EmbeddingService(
                # The embeddings server has the configured model, which may be a replaced one.
                await embedding_backend(encoder, manifest, runtime)
                if name == settings.embedding_model
                else LocalBackend(encoder),
                manifest,
                settings.embedding_queue_size,
                clock,
                metrics,
                supervisor,
            )
        )
        claim_duration = timedelta(seconds=settings.llm_reply_timeout_s + _STORE_REPLY_S)
        quota = await stack.enter_async_context(UserQuota(database, settings.user_bytes, clock))
        stores = Stores.of(database, manifest.fingerprint, claim_duration, quota)
        await bind_model(database, manifest.name, manifest.fingerprint, manifest.dimension)
        search = GatedSearch(
            RankedSearch(StoredCandidates(stores.memories), manifest.languages, manifest.floor),
            classifiers,
        )
        await _warm_up(embedder, search, settings)
        yield Core(
            runtime=runtime,
            database=database,
            database_url=url,
            bus=bus,
            stores=stores,
            embedder=embedder,
            classifiers=classifiers,
            search=search,
            ingester=MemoryIngester(
                stores.memories, embedder, classifiers, settings, clock, metrics
            ),
        )


def _warn_of_no_calibration(manifest: Manifest, say: Say) -> None:
    if not manifest.calibration:
        say(
            f"{manifest.name} is not calibrated, so that no texts count as similar: topics, "
            "episodes and questions are found by names only, older notes not at all, and "
            "erasing spares replies that only mean the same. Run: foremind models calibrate "
            f"{manifest.name}"
        )


async def _warm_up(embedder: EmbeddingService, search: MemorySearch, settings: Settings) -> None:
    """Run one search and judge one message, so that no player pays for what is slow at first."""
    policy = policy_for(CompanionSettings(), settings)
    said = "I promise to meet my sister Ana at the harbour tomorrow"
    await asyncio.to_thread(time_words.prepare)
    await asyncio.to_thread(score_significance, said, 0.0, policy.storage.rules)
    await asyncio.to_thread(facts_in, said)
    text = "What do you remember of the harbour yesterday?"  # parsing a date is slow at first, too
    vector = await embedder.embed_query(text, Priority.ENTER)
    await search.search(Query(0, text, vector, policy.recall, datetime.now(UTC)))


def build_eraser(components: Core) -> Eraser:
    """Return what erases memories, transcripts and records on request."""
    return Eraser(
        components.database,
        components.ingester,
        components.embedder,
        components.runtime.clock,
        _similarity_thresholds(components),
    )


def build_user_eraser(components: Core) -> UserEraser:
    """Return what erases users with all that they said."""
    eraser = build_eraser(components)
    worlds = build_world_eraser(components, eraser)
    return UserEraser(components.stores.users, eraser, worlds, components.runtime.clock)


def build_world_eraser(components: Core, eraser: Eraser) -> WorldEraser:
    """Return what lets the minds of worlds forget."""
    return WorldEraser(components.stores, eraser, components.runtime.clock)


def build_corrector(components: Core) -> Corrector:
    """Return what corrects memories."""
    return Corrector(
        components.database,
        components.embedder,
        components.ingester,
        components.runtime.clock,
        _similarity_thresholds(components),
        components.stores.quota,
    )


def build_importer(components: Core) -> RelationshipImporter:
    """Return what imports relationships."""
    return RelationshipImporter(
        TransferStore(components.database, components.embedder.manifest.fingerprint),
        components.stores,
        components.embedder,
        components.ingester,
        components.runtime.settings,
    )


def build_retention_enforcer(components: Core) -> RetentionEnforcer:
    """Return what removes expired data."""
    return RetentionEnforcer(
        components.database, components.ingester, components.embedder, components.runtime.clock
    )


def build_background_worker(
    components: Core, chat_models: ChatModels, has_peers: Callable[[], bool] = lambda: False
) -> BackgroundWorker:
    """Return the worker that ingests turns and maintains layers; it runs while it is entered.

    Args:
        has_peers: whether other processes serve relationships of the same database.
    """
    background_store = BackgroundStore(components.database)
    step_store = StepStore(components.database, HELD_AT_LEAST, STEPS_BY_NAME)
    runner = StepRunner(
        background_store,
        step_store,
        components.stores,
        components.embedder,
        chat_models,
        build_retention_enforcer(components),
        build_eraser(components),
        ImportanceRater(chat_models, components.stores.memories, components.ingester),
        components.runtime,
    )
    return BackgroundWorker(
        background_store,
        step_store,
        runner,
        components.ingester,
        components.runtime,
        has_peers,
    )


def _similarity_thresholds(components: Core) -> SimilarityThresholds:
    """Return the cosines from which two stored texts count as being about the same."""
    manifest = components.embedder.manifest
    return SimilarityThresholds(
        calibrated_passage_cosine(manifest, MIN_TOPIC_COSINE),
        calibrated_passage_cosine(manifest, MIN_EPISODE_COSINE),
    )
