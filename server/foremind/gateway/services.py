"""What every session of a server shares."""

from dataclasses import dataclass, field

from foremind.clock import Clock
from foremind.curation.afterwards import Afterwards
from foremind.curation.worker import Curation
from foremind.gateway.answering import Answering
from foremind.gateway.current import Current
from foremind.generation.voices import Voices
from foremind.identity.authority import Authority
from foremind.layers.held import HeldLayers
from foremind.layers.library import Library
from foremind.layers.uses import Uses
from foremind.memory.indexed import IndexedCandidates
from foremind.memory.remember import Rememberer
from foremind.metrics import Metrics
from foremind.settings import Settings
from foremind.storage.companions import CompanionStore
from foremind.storage.relationships import RelationshipStore
from foremind.storage.session_state import StateStore
from foremind.storage.turns import TurnStore
from foremind.typeahead.prepare import Preparer
from foremind.typeahead.prepared import PreparedCache


@dataclass(frozen=True, slots=True)
class Services:
    """What every session of a server shares."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    authority: Authority
    companions: CompanionStore
    relationships: RelationshipStore
    current: Current
    turns: TurnStore
    states: StateStore
    preparer: Preparer
    prepared: PreparedCache
    index: IndexedCandidates
    held: HeldLayers
    library: Library
    curation: Curation
    afterwards: Afterwards
    rememberer: Rememberer
    uses: Uses
    voices: Voices
    embedding: str
    answering: Answering = field(default_factory=Answering)
