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
from foremind.storage.database import Database

MOST_CHUNKS = 40_000  # searched per companion; about 8,000 pages
_CHUNKING_VERSION = 2  # documents chunked by an earlier version are chunked again


class DocumentStore:
    """Reads and writes the documents of one companion at a time."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    async def of_companion(self, companion_id: int) -> list[Document]:
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
                _CHUNKING_VERSION,
            )
            if row is None:
                raise NotFound("companion: expected a known companion", param="companion")
            await connection.execute("insert_chunks", row["id"], companion_id, list(chunks))
            return int(row["id"])

    async def remove(self, companion_id: int, document_id: int) -> None:
        """Delete a document.

        Raises:
            NotFound: the companion has no document with that id.
        """
        if await self._database.row("delete_document", document_id, companion_id) is None:
            raise NotFound("document: expected the id of a document here", param="document")
        await self.announce(companion_id, gone=True)

    async def chunks(self, companion_id: int) -> list[Chunk]:
        """Return the chunks of a companion's documents, at most `MOST_CHUNKS`."""
        rows = await self._database.rows("chunks_of_companion", companion_id, MOST_CHUNKS)
        return await asyncio.to_thread(lambda: [Chunk(**dict(row)) for row in rows])

    async def cut_before(self) -> list[tuple[int, int]]:
        """Return the ids of documents chunked by an earlier version, and of their companions."""
        rows = await self._database.rows("documents_chunked_before", _CHUNKING_VERSION)
        return [(row["id"], row["companion_id"]) for row in rows]

    async def contents(self, document_id: int) -> list[str]:
        """Return the texts of a document's chunks, in order."""
        rows = await self._database.rows("chunks_of_document", document_id)
        return [row["content"] for row in rows]

    async def cut_anew(self, document_id: int, chunks: Sequence[str]) -> None:
        """Replace the chunks of a document; they are embedded later."""
        async with self._database.transaction() as connection:
            row = await connection.row(
                "replace_document_chunks", document_id, len(chunks), _CHUNKING_VERSION
            )
            if row is not None:
                await connection.execute("delete_chunks", document_id)
                await connection.execute(
                    "insert_chunks", document_id, row["companion_id"], list(chunks)
                )

    async def unfinished(self) -> list[tuple[int, int]]:
        """Return the ids of documents with chunks to embed, and of their companions."""
        rows = await self._database.rows("unfinished_documents")
        return [(row["id"], row["companion_id"]) for row in rows]

    async def to_embed(self, document_id: int) -> list[tuple[int, str]]:
        """Return id and text of a document's chunks that have no vector."""
        rows = await self._database.rows("chunks_to_embed", document_id)
        return [(row["id"], row["content"]) for row in rows]

    async def keep_vector(self, chunk_id: int, vector: npt.NDArray[np.float32]) -> None:
        """Store the vector of a chunk."""
        await self._database.execute(
            "store_chunk_vector", chunk_id, HalfVector(vector), self._fingerprint
        )

    async def announce(self, companion_id: int, *, gone: bool = False) -> None:
        """Announce that a companion's documents changed; `gone` if one was deleted."""
        await self._database.announce(LibraryChanged(companion_id, gone))
