"""The server: what is built at its start, in order, and stopped in reverse."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from starlette.applications import Starlette

from fair_transport import Precedence
from foremind.app.configuration import PREFIX, read_companion
from foremind.app.core import (
    Core,
    Say,
    build_background_worker,
    build_eraser,
    build_user_eraser,
    build_world_eraser,
    core,
)
from foremind.app.http_routes import build_asgi
from foremind.app.listening import listening
from foremind.auth.authority import Authority, load_keyring
from foremind.background.post_reply import PostReplyBehaviours
from foremind.background.worker import BackgroundWorker
from foremind.cluster.announcement_bus import AnnouncementReceiver
from foremind.cluster.freshness import Freshness
from foremind.cluster.membership import Membership
from foremind.cluster.ring import Gateway
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidFile, SetupError
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings, Settings, check_binding, filled_url
from foremind.gateway.live_settings import LiveSettings
from foremind.gateway.protocol.client_messages import MAX_ESCAPED_BYTES
from foremind.gateway.scenes import Scenes
from foremind.gateway.session_registry import Handover, Reconciliation, SessionRegistry
from foremind.gateway.session_services import AfterReplyServices, SessionServices
from foremind.gateway.single_turn import SingleTurns
from foremind.gateway.turns.request_queue import Deduplicator
from foremind.llm.model_probe import ModelProbes
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.token_counter import load_counter
from foremind.llm.token_accounts import TokenAccounts
from foremind.memory.exchange_changes import ExchangeChanges
from foremind.retrieval.access_counts import AccessCounts
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind.retrieval.documents.library import Library
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.layer_cache import LayerCache
from foremind.retrieval.search import (
    GatedSearch,
    RankedSearch,
)
from foremind.runtime import caches
from foremind.runtime.garbage_collection import FullCollectionPolicy
from foremind.runtime.supervision import SupervisedLoop
from foremind.storage.companion_store import CompanionStore
from foremind.storage.presence import PresenceKeeper
from foremind.storage.probe import DatabaseProbe
from foremind.storage.quotas import TokenQuota
from foremind.storage.user_store import RevocationStore
from foremind.text.pin_requests import text_to_pin
from foremind.text.statements import constructions
from foremind.typeahead.context_builder import ContextBuilder, ContextServices
from foremind.typeahead.context_cache import ContextCache
from foremind.typeahead.draft_lore import Lorebooks
from foremind_models import ModelUnusable, find_model, ready_model


async def start_session_services(
    components: Core,
    authority: Authority,
    chat_models: ChatModels,
    worker: BackgroundWorker,
    precedence: Precedence,
    stack: AsyncExitStack,
) -> SessionServices:
    """Build and start what sessions share; it runs until the stack is closed."""
    runtime, stores = components.runtime, components.stores
    behaviours = await stack.enter_async_context(PostReplyBehaviours(chat_models, runtime.metrics))
    access_counts = await stack.enter_async_context(
        AccessCounts(stores.records, runtime.supervisor)
    )
    live_settings = await stack.enter_async_context(
        LiveSettings(
            partial(_ready_companion, stores.companions, chat_models, runtime.settings),
            stores.relationships,
            runtime.clock,
        )
    )
    freshness = await stack.enter_async_context(
        Freshness(stores.versions, lambda: components.bus.trusted, runtime.clock, runtime.metrics)
    )
    return SessionServices(
        runtime=runtime,
        freshness=freshness,
        authority=authority,
        stores=stores,
        live_settings=live_settings,
        context=await _start_context_services(components, freshness, stack),
        chat_models=chat_models,
        deduplicator=Deduplicator(precedence),
        after_reply=AfterReplyServices(behaviours, components.ingester, access_counts, worker),
        exchanges=ExchangeChanges(build_eraser(components), runtime.clock),
    )


async def _ready_companion(
    store: CompanionStore, chat_models: ChatModels, settings: Settings, companion_id: int
) -> Companion | None:
    """Read a companion, and load what its chat model needs: it may be the first to have one."""
    companion = await store.get(companion_id)
    if companion is not None:
        await chat_models.prepare(policy_for(companion.settings, settings).chat_model)
    return companion


async def _start_context_services(
    components: Core, freshness: Freshness, stack: AsyncExitStack
) -> ContextServices:
    runtime, stores, embedder = components.runtime, components.stores, components.embedder
    settings, clock, metrics = runtime.settings, runtime.clock, runtime.metrics
    index = await stack.enter_async_context(
        IndexedCandidates(stores.memories, settings.index_bytes, metrics)
    )
    layer_cache = await stack.enter_async_context(
        LayerCache(stores.records, embedder.manifest, settings.layers_bytes, metrics)
    )
    library = await stack.enter_async_context(
        Library(stores.documents, embedder, clock, runtime.supervisor)
    )
    manifest = embedder.manifest
    search = GatedSearch(
        RankedSearch(index, manifest.languages, manifest.floor), components.classifiers
    )
    cache = ContextCache(
        settings.prepared_capacity, settings.prepared_bytes, settings.prepared_ttl_s, clock
    )
    metrics.prepared_contexts.set_function(lambda: len(cache))
    metrics.prepared_bytes.set_function(lambda: cache.total_bytes)
    return ContextServices(
        embedder=embedder,
        index=index,
        layer_cache=layer_cache,
        library=library,
        builder=ContextBuilder(embedder, search, layer_cache, library, clock, metrics, freshness),
        cache=cache,
        lorebooks=Lorebooks(),
    )


_log = structlog.get_logger("foremind.app")

_EXAMPLES = Path(__file__).parents[1] / "examples"
_FIRST_EXAMPLE = _EXAMPLES / "wren.toml"
_FINISH_ERASURES_S = 60.0  # between two looks for interrupted erasures
_DELETE_ABANDONED_S = 3600.0  # between two looks for what was undone in worlds


@dataclass(frozen=True, slots=True)
class Application:
    """A whole server that is not listening yet."""

    core: Core
    registry: SessionRegistry
    turns: SingleTurns
    asgi: Starlette
    precedence: Precedence
    #: Set once the database has another embedding model, with which the server is to start again.
    model_replaced: asyncio.Event


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
        await asyncio.to_thread(constructions.prepare)
        await asyncio.to_thread(text_to_pin, "")  # compiles its phrases
        await _create_example_companions(components, say)
        await _warn_of_short_retention(components)
        chat_models = await _start_chat_models(components, stack)
        authority = Authority(
            settings, RevocationStore(components.database), components.runtime.clock
        )
        membership = Membership(
            components.stores.gateways, components.runtime.clock, components.runtime.supervisor
        )
        worker = build_background_worker(
            components, chat_models, has_peers=lambda: membership.ring.has_several
        )
        precedence = Precedence()
        services = await start_session_services(
            components, authority, chat_models, worker, precedence, stack
        )
        registry = await stack.enter_async_context(
            SessionRegistry(components.runtime, authority, membership, Scenes(services))
        )
        models = ModelProbes(
            settings, chat_models, components.stores.companions.list, components.runtime.clock
        )
        await _start_receiving(components, services, registry, models, stack)
        probing = components.runtime.supervisor.start("model-probe", models.run)
        stack.push_async_callback(probing.stop)
        await stack.enter_async_context(worker)
        worlds = build_world_eraser(components, build_eraser(components))
        for name, seconds, finish in (
            (
                "user-erasures",
                _FINISH_ERASURES_S,
                build_user_eraser(components).finish_interrupted,
            ),
            ("world-erasures", _FINISH_ERASURES_S, worlds.finish_interrupted),
            ("abandoned-timelines", _DELETE_ABANDONED_S, worlds.delete_abandoned),
        ):
            erasures = components.runtime.supervisor.every(name, seconds, finish)
            stack.push_async_callback(erasures.stop)
        probe = await stack.enter_async_context(
            DatabaseProbe(
                components.database, components.runtime.supervisor, components.runtime.clock
            )
        )
        turns = SingleTurns(services, registry)
        asgi = await build_asgi(components, services, registry, turns, probe, models, stack)
        model_replaced = asyncio.Event()
        awaiting = components.runtime.supervisor.start(
            "embedding-model", partial(_await_model, probe, settings, say, model_replaced)
        )
        stack.push_async_callback(awaiting.stop)
        yield Application(components, registry, turns, asgi, precedence, model_replaced)


async def _await_model(
    probe: DatabaseProbe,
    settings: Settings,
    say: Say,
    replaced: asyncio.Event,
    loop: SupervisedLoop,
) -> None:
    """Once the database has another embedding model, make that ready, and say so."""
    loop.report_progress()
    name = await probe.replaced_model()
    _log.info("embedding_model.replaced", used=name, expected="a new start with it")
    manifest = find_model(name, settings.models_dir)
    await asyncio.to_thread(ready_model, manifest, settings.models_dir, TEXT_FEATURES, say)
    replaced.set()
    await asyncio.Event().wait()  # until the server stops


@asynccontextmanager
async def serving(
    settings: Settings,
    *,
    clock: Clock | None = None,
    say: Say = lambda _: None,
    shared: socket.socket | None = None,
    open_socket: Callable[[], socket.socket] | None = None,
) -> AsyncIterator[tuple[Application, int]]:
    """Run a whole server and yield it with its port; on leaving, drain and stop it.

    Args:
        shared: another listening socket to serve, which this process shares with others.
        open_socket: returns the listening socket to serve, which outlives the server.

    Raises:
        SetupError: says what the operator must change.
    """
    async with (
        application(settings, clock=clock, say=say) as app,
        listening(
            app.asgi,
            settings,
            clock=app.core.runtime.clock,
            metrics=app.core.runtime.metrics,
            frame_bytes=MAX_ESCAPED_BYTES,
            precedence=app.precedence,
            shared=shared,
            open_socket=open_socket,
        ) as port,
        FullCollectionPolicy(app.core.runtime.supervisor),
        _membership(app, port),
    ):
        try:
            yield app, port
        finally:
            await app.registry.drain(settings.drain_s)


@asynccontextmanager
async def _membership(app: Application, port: int) -> AsyncIterator[None]:
    """Be one of the gateways that clients can be told to go to, if there is a URL to tell."""
    runtime, registry = app.core.runtime, app.registry
    url = runtime.settings.public_url
    if url is None:
        yield
        return
    name = runtime.settings.gateway_name or f"{socket.gethostname()}-{port}"
    loops = [
        await registry.membership.join(Gateway(name, filled_url(url, name, port))),
        Handover(registry, runtime.clock, runtime.metrics).start(runtime.supervisor),
    ]
    try:
        yield
    finally:
        for loop in loops:
            await loop.stop()


def check_files(settings: Settings) -> None:
    """Check that the files and folders that settings name are usable, before anything starts.

    Raises:
        InvalidFile: names the setting.
    """
    checks: dict[str, Callable[[], object]] = {
        "DATA_DIR": lambda: settings.data_dir.mkdir(parents=True, exist_ok=True),
        "AUTH_KEYS": lambda: load_keyring(settings),
        "LLM_TOKENIZER": lambda: (
            None if settings.llm_tokenizer is None else load_counter(str(settings.llm_tokenizer))
        ),
        "EMBEDDING_MODEL": lambda: find_model(settings.embedding_model, settings.models_dir),
    }
    for name, check in checks.items():
        try:
            check()
        except (SetupError, ModelUnusable, OSError) as error:
            raise InvalidFile(f"{PREFIX}{name}: {error}") from None


async def _create_example_companions(components: Core, say: Say) -> None:
    """Give a new server a companion to talk to, and one with its own database all examples."""
    if await components.stores.companions.list():
        return
    embedded = components.runtime.settings.database_url is None
    others = sorted(set(_EXAMPLES.glob("*.toml")) - {_FIRST_EXAMPLE}) if embedded else []
    for path in (_FIRST_EXAMPLE, *others):
        example = read_companion(path)
        await components.stores.companions.put(example)
        say(f"Created the example companion {example.name}.")


async def _warn_of_short_retention(components: Core) -> None:
    """Warn where what expires leaves all that was derived from it, which may not be intended."""
    settings = components.runtime.settings
    own = {"": CompanionSettings()} | {
        companion.slug: companion.settings
        for companion in await components.stores.companions.list()
        if companion.settings.retention_days
    }
    for slug, companion_settings in own.items():
        layers = policy_for(companion_settings, settings).layers
        if layers.expires_sources_only:
            _log.warning(
                "retention.leaves_derived",
                **({"companion": slug} if slug else {}),
                expiring=sorted(layers.retention),
                hint="what was derived from them is kept; retention_days.all covers that, too",
            )


async def _start_chat_models(components: Core, stack: AsyncExitStack) -> ChatModels:
    runtime, settings = components.runtime, components.runtime.settings
    quota = await stack.enter_async_context(
        TokenQuota(components.database, runtime.supervisor, runtime.clock)
    )
    accounts = TokenAccounts(quota, components.stores.companions, runtime.metrics)
    chat_models = ChatModels(settings, accounts)
    stack.push_async_callback(chat_models.close)
    await chat_models.prepare(policy_for(CompanionSettings(), settings).chat_model)
    return chat_models


async def _start_receiving(
    components: Core,
    services: SessionServices,
    registry: SessionRegistry,
    models: ModelProbes,
    stack: AsyncExitStack,
) -> None:
    """Follow what other processes announce, and show them that this one is alive."""
    runtime, context, freshness = components.runtime, services.context, services.freshness

    async def catch_up() -> None:
        await freshness.catch_up()
        await services.chat_models.invalidate_all()
        await registry.catch_up()

    freshness.receiver = AnnouncementReceiver(
        # The index before what uses it: no listener that learns of a version may be served an older
        # one.
        [
            freshness.on_announcement,
            context.index.on_announcement,
            context.lorebooks.on_announcement,
            services.live_settings.on_announcement,
            context.cache.on_announcement,
            context.layer_cache.on_announcement,
            context.library.on_announcement,
            components.ingester.on_announcement,
            services.chat_models.on_announcement,
            models.on_announcement,
            caches.on_announcement,
            registry.on_announcement,
        ],
        freshness.hint,
        catch_up,
        runtime.metrics,
    )
    await stack.enter_async_context(components.bus.receiving(freshness.receiver))
    await stack.enter_async_context(Reconciliation(freshness, registry, runtime.supervisor))
    await stack.enter_async_context(
        PresenceKeeper(
            components.database.url,
            components.embedder.manifest.fingerprint,
            components.stores.presence,
            runtime.clock,
            runtime.supervisor,
        )
    )
