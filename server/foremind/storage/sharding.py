"""Which tables a sharded database (Citus) spreads over its nodes, and how it is recognised."""

from typing import Any

from foremind.domain.errors import DatabaseUnsuitable
from foremind.storage.named_queries import load_queries

#: The table that all of a relationship's rows are co-located with, by its `id`.
OWNER_TABLE = "relationships"

#: Tables distributed by `relationship_id`: what was said, what is derived from it, and what waits
#: to be done. So one node has all of a relationship, and a turn and its job are one transaction.
OWNED_TABLES = (
    "sessions",
    "session_states",
    "turns",
    "alternative_replies",
    "reply_prompts",
    "memories",
    "memory_sources",
    "memory_facts",
    "memory_changes",
    "memory_terms",
    "records",
    "record_sources",
    "record_revisions",
    "audit",
    "background_steps",
    "background_claims",
    "witnesses",
)

#: Tables that every node has a copy of: small, seldom written, and joined with the others or read
#: by every process.
REFERENCE_TABLES = (
    "companions",
    "users",
    "embedding_model",
    "documents",
    "document_chunks",
    "revocations",
    "pseudonym_key",
    "erased_users",
    "spent_tokens",
    "timelines",
    "worlds",
    "saves",
    "scenes",
    "world_events",
    "event_sources",
    "events_to_forget",
    "fired_triggers",
)

#: Tables that only the coordinator has: what has been migrated, when a backup was made, and the
#: gateways, which live while they hold its advisory locks.
LOCAL_TABLES = ("schema_migrations", "last_backup", "gateways")

#: A transaction's relationship reaches the workers, whose row-level security compares it; queries
#: of several nodes are planned with their arguments, as they cannot be without; changes on several
#: nodes are made one after another, as one that concerns a copied table requires; and catalogues
#: are read without hiding shards, which costs seconds when the driver looks up the types of a
#: first search.
SESSION_SETTINGS = (
    "SET citus.propagate_set_commands = 'local'; SET plan_cache_mode = 'auto'; "
    "SET citus.multi_shard_modify_mode = 'sequential'; "
    "SET citus.override_table_visibility = off"
)


async def is_sharded(connection: Any) -> bool:
    """Return whether the tables of a connection's database are distributed.

    Raises:
        DatabaseUnsuitable: they are, but not all, or this node is not the coordinator.
    """
    if not await check_node(connection):
        return False
    if missing := await undistributed_tables(connection):
        raise DatabaseUnsuitable(
            f"These tables are on the coordinator only: {', '.join(missing)}. Stop all servers, "
            "then run: foremind db distribute"
        )
    return True


async def check_node(connection: Any) -> bool:
    """Check that a node of a sharded database is its coordinator; False if it is not sharded.

    Raises:
        DatabaseUnsuitable: it is a worker.
    """
    queries = load_queries()
    if not await connection.fetchval(queries["has_citus"]):
        return False
    if not await connection.fetchval(queries["is_distributed"]):
        return False
    if not await connection.fetchval(queries["is_coordinator"]):
        raise DatabaseUnsuitable(
            "This is a worker node of a Citus database. Let FOREMIND_DATABASE_URL name its "
            "coordinator: notifications and the order of ids depend on one node."
        )
    return True


async def undistributed_tables(connection: Any) -> list[str]:
    """Return the tables of a Citus database that are to be distributed, and are not yet."""
    rows = await connection.fetch(load_queries()["tables_to_distribute"])
    known = (OWNER_TABLE, *OWNED_TABLES, *REFERENCE_TABLES)
    return sorted({row["name"] for row in rows} & set(known))
