"""The embedding model that a database belongs to, and how another one takes its place."""

from typing import Any

import asyncpg
import structlog

from foremind.domain.errors import ModelMismatch
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.migrations import connected
from foremind.storage.named_queries import load_queries

_log = structlog.get_logger("foremind.storage")

_BATCH_SIZE = 1000  # relationships


async def bind_model(database: Database, name: str, fingerprint: str, dimension: int) -> None:
    """Claim a database for an embedding model, unless it holds vectors of another.

    Raises:
        ModelMismatch: it holds vectors of another model.
        StorageUnavailable: the database did not answer.
    """
    await database.execute("claim_embedding_model", name, fingerprint, dimension)
    owner = await database.row("embedding_model")
    if owner is not None and owner["fingerprint"] == fingerprint:
        database.use_vectors(fingerprint, swapped=owner["swapped"])
        return
    # Looked for once without the lock, which other processes would have to wait for.
    async with database.transaction() as connection:
        if await _has_vectors(connection):
            raise _mismatch(owner, name, dimension)
    async with database.transaction() as connection:
        await connection.execute("lock_embedding_model")
        owner = await connection.row("embedding_model")
        if await _has_vectors(connection):
            raise _mismatch(owner, name, dimension)
        await connection.execute("replace_embedding_model", name, fingerprint, dimension)
    database.use_vectors(fingerprint, swapped=owner is not None and owner["swapped"])


async def _has_vectors(connection: DatabaseConnection) -> bool:
    """Return whether a memory, turn, record or passage has a vector.

    Row-level security shows those of one relationship at a time; the first one that says something
    ends the search, so that only a database without vectors is searched to its end.
    """
    if await connection.row("any_passage_vector"):
        return True
    last = 0
    while batch := await connection.rows("relationships_after", last, _BATCH_SIZE):
        for row in batch:
            await connection.scope_to(row["id"])
            if await connection.row("any_vector_of", row["id"]):
                return True
        last = batch[-1]["id"]
    return False


def _mismatch(owner: Any, name: str, dimension: int) -> ModelMismatch:
    stored = "another model" if owner is None else f"{owner['name']} ({owner['dimension']})"
    return ModelMismatch(
        f"This store's vectors were made by {stored}; they cannot be compared with those "
        f"of {name} ({dimension}). Set FOREMIND_EMBEDDING_MODEL back; to change the model, run "
        f"`foremind db reembed {name}` then, while the server runs."
    )


async def model_to_use(database: Database, configured: str) -> str:
    """Return the name of the model of a database that had the configured one, else the configured.

    `foremind db reembed` changes the model of servers that run, and no settings: they are as before
    when a server starts again.
    """
    owner = await database.row("embedding_model")
    if owner is None or configured not in owner["earlier"]:
        return configured
    _log.warning(
        "embedding_model.replaced",
        configured=configured,
        used=owner["name"],
        expected=f"FOREMIND_EMBEDDING_MODEL={owner['name']}",
    )
    return str(owner["name"])


async def index_other_vectors(url: str, *, swapped: bool) -> None:
    """Build the index that searches of the other vectors use, while servers write.

    Args:
        url: of the tables' owner.
        swapped: as for `load_queries`.
    """
    column = "embedding" if swapped else "other_embedding"
    name = f"memories_by_{column}"
    async with connected(url) as owner:
        if await owner.fetchval(load_queries()["is_index_valid"], name):
            return
        await owner.execute(f"DROP INDEX IF EXISTS {name}")  # an interrupted attempt
        await owner.execute(
            f"CREATE INDEX CONCURRENTLY {name} ON memories (relationship_id, created_at) "
            f"INCLUDE (id, significance, {column})"
        )


async def empty_other_vectors(url: str, fingerprint: str, *, swapped: bool) -> bool:
    """Drop the other vectors; False if a process still searches them, or a table is in use.

    Args:
        url: of the tables' owner.
        fingerprint: of their model.
        swapped: as for `load_queries`.
    """
    queries = load_queries(swapped=swapped)
    async with connected(url) as owner:
        if not await owner.fetchval(queries["lock_unused_model"], fingerprint):
            return False
        await owner.execute("SET lock_timeout = '2s'")
        try:
            await owner.execute(queries["empty_other_vectors"])
        except asyncpg.LockNotAvailableError:
            return False
    return True
