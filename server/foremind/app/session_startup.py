"""Builds and starts what sessions share."""

from contextlib import AsyncExitStack
from functools import partial

from foremind.app.builders import build_eraser
from foremind.app.core import Core
from foremind.auth.authority import Authority
from foremind.background.post_reply import PostReplyBehaviours
from foremind.background.worker import BackgroundWorker
from foremind.cluster.freshness import Freshness
from foremind.domain.companion import Companion
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import Settings
from foremind.gateway.live_settings import LiveSettings
from foremind.gateway.session_services import AfterReplyServices, SessionServices
from foremind.gateway.transport.enter_precedence import EnterPrecedence
from foremind.gateway.turns.request_queue import Deduplicator
from foremind.llm.model_selection import ChatModels
from foremind.memory.exchange_changes import ExchangeChanges
from foremind.retrieval.access_counts import AccessCounts
from foremind.retrieval.documents.library import Library
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.layer_cache import LayerCache
from foremind.retrieval.search import (
    GatedSearch,
    RankedSearch,
)
from foremind.storage.companion_store import CompanionStore
from foremind.typeahead.context_builder import ContextBuilder, ContextServices
from foremind.typeahead.context_cache import ContextCache
from foremind.typeahead.draft_lore import Lorebooks


async def start_session_services(
    components: Core,
    authority: Authority,
    chat_models: ChatModels,
    worker: BackgroundWorker,
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
        deduplicator=Deduplicator(EnterPrecedence()),
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
