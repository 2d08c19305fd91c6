"""Documents of companions in the database: passages, here called chunks, each with a vector."""

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

MOST_CHUNKS = 40_000  # of one companion that are searched: about as many pages as 8,000
CUT = 2  # how documents are cut now; what was cut before is cut anew


class DocumentStore:
    """Reads and writes documents, always of one companion."""

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
        """Store a document in chunks, to be embedded; return its id."""
        async with self._database.transaction() as connection:
            row = await connection.row(
                "insert_document", companion_id, title, media_type, len(chunks), now, CUT
            )
            if row is None:
                raise NotFound("companion: expected a known companion", param="companion")
            await connection.execute("insert_chunks", row["id"], companion_id, list(chunks))
            return int(row["id"])

    async def remove(self, companion_id: int, document_id: int) -> None:
        """Delete a document.

        Raises:
            NotFound: the companion has none of that id.
        """
        if await self._database.row("delete_document", document_id, companion_id) is None:
            raise NotFound("document: expected the id of a document here", param="document")
        await self.announce(companion_id, gone=True)

    async def chunks(self, companion_id: int) -> list[Chunk]:
        """Return the chunks of a companion's documents, at most `MOST_CHUNKS`."""
        rows = await self._database.rows("chunks_of_companion", companion_id, MOST_CHUNKS)
        return await asyncio.to_thread(lambda: [Chunk(**dict(row)) for row in rows])

    async def cut_before(self) -> list[tuple[int, int]]:
        """Return documents that were cut in an earlier way, with their companions."""
        rows = await self._database.rows("documents_cut_before", CUT)
        return [(row["id"], row["companion_id"]) for row in rows]

    async def contents(self, document_id: int) -> list[str]:
        """Return the text of the chunks of a document, in order."""
        rows = await self._database.rows("chunks_of_document", document_id)
        return [row["content"] for row in rows]

    async def cut_anew(self, document_id: int, chunks: Sequence[str]) -> None:
        """Put other chunks, to be embedded, in the place of those of a document."""
        async with self._database.transaction() as connection:
            row = await connection.row("cut_anew", document_id, len(chunks), CUT)
            if row is not None:
                await connection.execute("delete_chunks", document_id)
                await connection.execute(
                    "insert_chunks", document_id, row["companion_id"], list(chunks)
                )

    async def unfinished(self) -> list[tuple[int, int]]:
        """Return documents that are not wholly embedded, with their companions."""
        rows = await self._database.rows("unfinished_documents")
        return [(row["id"], row["companion_id"]) for row in rows]

    async def to_embed(self, document_id: int) -> list[tuple[int, str]]:
        """Return the chunks of a document that have no vector, by id."""
        rows = await self._database.rows("chunks_to_embed", document_id)
        return [(row["id"], row["content"]) for row in rows]

    async def keep_vector(self, chunk_id: int, vector: npt.NDArray[np.float32]) -> None:
        """Keep the vector of a chunk."""
        await self._database.execute(
            "keep_chunk_vector", chunk_id, HalfVector(vector), self._fingerprint
        )

    async def announce(self, companion_id: int, *, gone: bool = False) -> None:
        """Tell every process that a companion's documents changed; with `gone`, that one went."""
        await self._database.announce(LibraryChanged(companion_id, gone))
