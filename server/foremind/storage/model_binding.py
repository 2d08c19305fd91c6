"""Binds a database to the embedding model whose vectors it holds: two models' are never mixed."""

from typing import Any

from foremind.domain.errors import ModelMismatch
from foremind.storage.database import Database, DatabaseConnection

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
        f"of {name} ({dimension}). Set FOREMIND_EMBEDDING_MODEL back, or use another "
        "FOREMIND_DATA_DIR or FOREMIND_DATABASE_URL."
    )
