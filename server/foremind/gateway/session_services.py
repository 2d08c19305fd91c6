"""The services that all sessions of a server share."""

from dataclasses import dataclass

from foremind.auth.authority import Authority
from foremind.background.post_reply import PostReplyBehaviours
from foremind.background.worker import BackgroundWorker
from foremind.cluster.freshness import Freshness
from foremind.gateway.live_settings import LiveSettings
from foremind.gateway.turns.request_queue import Deduplicator
from foremind.llm.model_selection import ChatModels
from foremind.memory.exchange_changes import ExchangeChanges
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.access_counts import AccessCounts
from foremind.runtime.services import RuntimeServices
from foremind.storage.stores import Stores
from foremind.typeahead.context_builder import ContextServices


@dataclass(frozen=True, slots=True)
class AfterReplyServices:
    """What is told about a turn once it has been answered."""

    behaviours: PostReplyBehaviours
    ingester: MemoryIngester
    access_counts: AccessCounts
    background_worker: BackgroundWorker


@dataclass(frozen=True, slots=True)
class SessionServices:
    """The services that all sessions of a server share."""

    runtime: RuntimeServices
    freshness: Freshness
    authority: Authority
    stores: Stores
    live_settings: LiveSettings
    context: ContextServices
    chat_models: ChatModels
    after_reply: AfterReplyServices
    deduplicator: Deduplicator
    exchanges: ExchangeChanges
