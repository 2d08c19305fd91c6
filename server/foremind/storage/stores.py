"""The stores of one database."""

from dataclasses import dataclass
from datetime import timedelta

from foremind.storage.companion_store import CompanionStore, DocumentStore
from foremind.storage.database import Database
from foremind.storage.memory_store import MemoryStore
from foremind.storage.mind_store import MindStore
from foremind.storage.presence import GatewayStore, Presence
from foremind.storage.quotas import UserQuota
from foremind.storage.record_store import RecordStore
from foremind.storage.relationship_store import RelationshipStore, StateStore, VersionStore
from foremind.storage.turn_store import TurnStore
from foremind.storage.user_store import UserStore
from foremind.storage.world_erasure_store import WorldErasureStore
from foremind.storage.world_store import WorldStore


@dataclass(frozen=True, slots=True)
class Stores:
    """What reads and writes the database, by what it holds."""

    companions: CompanionStore
    users: UserStore
    relationships: RelationshipStore
    turns: TurnStore
    states: StateStore
    memories: MemoryStore
    records: RecordStore
    documents: DocumentStore
    worlds: WorldStore
    minds: MindStore
    world_erasures: WorldErasureStore
    versions: VersionStore
    presence: Presence
    gateways: GatewayStore
    quota: UserQuota

    @classmethod
    def of(
        cls,
        database: Database,
        fingerprint: str,
        claim_duration: timedelta,
        quota: UserQuota,
    ) -> "Stores":
        """Return the stores of a database.

        Args:
            fingerprint: of the embedding model.
            claim_duration: how long a message that is being answered belongs to its process.
            quota: of what users store.
        """
        presence = Presence()
        return cls(
            companions=CompanionStore(database),
            users=UserStore(database),
            relationships=RelationshipStore(database),
            turns=TurnStore(database, presence, claim_duration, quota),
            states=StateStore(database),
            versions=VersionStore(database),
            memories=MemoryStore(database, fingerprint),
            records=RecordStore(database, fingerprint),
            documents=DocumentStore(database, fingerprint),
            worlds=WorldStore(database),
            minds=MindStore(database, fingerprint),
            world_erasures=WorldErasureStore(database),
            presence=presence,
            gateways=GatewayStore(database, presence),
            quota=quota,
        )
