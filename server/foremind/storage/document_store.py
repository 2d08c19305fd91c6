"""Stores documents of companions in chunks, each with a vector."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import LibraryChanged
from foremind.domain.document import Chunk, Document
from foremind.domain.errors import NotFound
from foremind.storage.database import Database, DatabaseConnection

MAX_CHUNKS = 40_000  # searched per companion; about 8,000 pages


class DocumentStore:
    """Reads and writes the documents of one companion at a time."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    async def documents_of(self, companion_id: int) -> list[Document]:
        """Return a companion's documents."""
        rows = await self._database.rows("documents_of_companion", companion_id)
        return [Document(**dict(row)) for row in rows]

    async def add(
        self, companion_id: int, title: str, media_type: str, chunks: Sequence[str], now: datetime
    ) -> int:
        """Store a document and its chunks, which are embedded later; return its id."""
        async with self._database.transaction() as connection:
            row = await connection.row(
                "insert_document",
                companion_id,
                title,
                media_type,
                len(chunks),
                now,
            )
            if row is None:
                raise NotFound("companion: expected a known companion", param="companion")
            await connection.execute("insert_chunks", row["id"], companion_id, list(chunks))
            await _announce(connection, companion_id)
            return int(row["id"])

    async def remove(self, companion_id: int, document_id: int) -> None:
        """Delete a document.

        Raises:
            NotFound: the companion has no document with that id.
        """
        async with self._database.transaction() as connection:
            if await connection.row("delete_document", document_id, companion_id) is None:
                raise NotFound("document: expected the id of a document here", param="document")
            await _announce(connection, companion_id, deleted=True)

    async def chunks(self, companion_id: int) -> list[Chunk]:
        """Return the chunks of a companion's documents, at most `MAX_CHUNKS`."""
        rows = await self._database.rows("chunks_of_companion", companion_id, MAX_CHUNKS)
        return await asyncio.to_thread(lambda: [Chunk(**dict(row)) for row in rows])

    async def documents_to_embed(self) -> list[tuple[int, int]]:
        """Return the ids of documents with chunks to embed, and of their companions."""
        rows = await self._database.rows("unfinished_documents")
        return [(row["id"], row["companion_id"]) for row in rows]

    async def chunks_to_embed(self, document_id: int) -> list[tuple[int, str]]:
        """Return id and text of a document's chunks that have no vector."""
        rows = await self._database.rows("chunks_to_embed", document_id)
        return [(row["id"], row["content"]) for row in rows]

    async def store_chunk_vector(self, chunk_id: int, vector: npt.NDArray[np.float32]) -> None:
        """Store the vector of a chunk."""
        await self._database.execute(
            "store_chunk_vector", chunk_id, HalfVector(vector), self._fingerprint
        )

    async def announce_embedded(self, companion_id: int) -> None:
        """Announce that a document of a companion has its vectors."""
        async with self._database.transaction() as connection:
            await _announce(connection, companion_id)


async def _announce(
    connection: DatabaseConnection, companion_id: int, *, deleted: bool = False
) -> None:
    raised = await connection.row("raise_documents_version", companion_id)
    if raised is not None:
        connection.announce(LibraryChanged(companion_id, raised["version"], deleted))
