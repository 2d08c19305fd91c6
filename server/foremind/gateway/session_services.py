"""The services that all sessions of a server share."""

from dataclasses import dataclass, field

from foremind.auth.authority import Authority
from foremind.background.post_reply import PostReplyBehaviours
from foremind.background.worker import BackgroundWorker
from foremind.domain.clock import Clock
from foremind.domain.settings import Settings
from foremind.gateway.deduplication import Deduplicator
from foremind.gateway.live_settings import LiveSettings
from foremind.llm.model_selection import ChatModels
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.access_counts import AccessCounts
from foremind.retrieval.documents.library import Library
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.layer_cache import LayerCache
from foremind.runtime.metrics import Metrics
from foremind.storage.companion_store import CompanionStore
from foremind.storage.relationship_store import RelationshipStore
from foremind.storage.state_store import StateStore
from foremind.storage.turn_store import TurnStore
from foremind.typeahead.context_builder import ContextBuilder
from foremind.typeahead.context_cache import ContextCache


@dataclass(frozen=True, slots=True)
class SessionServices:
    """The services that all sessions of a server share.

    `embedding` is the fingerprint of the embedding model.
    """

    settings: Settings
    clock: Clock
    metrics: Metrics
    authority: Authority
    companions: CompanionStore
    relationships: RelationshipStore
    current: LiveSettings
    turns: TurnStore
    states: StateStore
    preparer: ContextBuilder
    prepared: ContextCache
    index: IndexedCandidates
    held: LayerCache
    library: Library
    curation: BackgroundWorker
    afterwards: PostReplyBehaviours
    rememberer: MemoryIngester
    uses: AccessCounts
    voices: ChatModels
    embedding: str
    deduplicator: Deduplicator = field(default_factory=Deduplicator)
