"""Storage, embedding and search without any server: what evaluation and benchmarks need, too."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from foremind.app.announcing import announcing_database
from foremind.app.embedding import embedding_backend
from foremind.cluster.announcement_bus import AnnouncementBus
from foremind.domain.clock import Clock, SystemClock
from foremind.domain.companion import CompanionSettings
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import Settings
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.calibration.calibrate import calibrated_model
from foremind.retrieval.calibration.preparation import ready_model
from foremind.retrieval.classifiers import TextClassifiers
from foremind.retrieval.embedding.model_registry import find_model
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.search import (
    GatedSearch,
    MemorySearch,
    Query,
    RankedSearch,
    StoredCandidates,
)
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor, begin, stop
from foremind.storage.database import Database
from foremind.storage.embedded_postgres import EmbeddedPostgres, as_server, embedded_postgres
from foremind.storage.migrations import migrate
from foremind.storage.model_binding import bind_model
from foremind.storage.quotas import UserQuota
from foremind.storage.stores import Stores

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
        yield settings.database_url.get_secret_value()
        return
    exists = EmbeddedPostgres(settings.data_dir).folder.exists()
    begin_with = "Starting the" if exists else "Creating an"
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
        manifest = find_model(settings.embedding_model, settings.models_dir)
        model = await asyncio.to_thread(ready_model, manifest, settings.models_dir, say)
        calibrated = calibrated_model(manifest, settings.models_dir)
        manifest, classifiers = calibrated.manifest, calibrated.classifiers
        if not manifest.calibration:
            say(
                f"{manifest.name} is not calibrated, so that no texts count as similar: topics, "
                "episodes and questions are found by names only, older notes not at all, and "
                "erasing spares replies that only mean the same. Run: foremind models calibrate "
                f"{manifest.name}"
            )
        encoder = begin(asyncio.to_thread(model.encoder), "load-model")
        stack.push_async_callback(stop, encoder)
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
        embedder = await stack.enter_async_context(
            EmbeddingService(
                await embedding_backend(await encoder, manifest, runtime),
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


async def _warm_up(embedder: EmbeddingService, search: MemorySearch, settings: Settings) -> None:
    """Run one search, so that no player pays for what is slow the first time."""
    text = "What do you remember of the harbour yesterday?"  # parsing a date is slow at first, too
    vector = await embedder.embed_query(text, Priority.ENTER)
    policy = policy_for(CompanionSettings(), settings).recall
    await search.search(Query(0, text, vector, policy, datetime.now(UTC)))
