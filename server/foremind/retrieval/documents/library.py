"""The reference library: documents of a companion, apart from what any user said.

A document is shared by everybody who talks with the companion. It can be found by its words as soon
as it is stored, and by meaning once the background has embedded it.
"""

import asyncio
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.domain.announcements import LibraryChanged
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, StorageUnavailable, TemporaryError
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.llm.prompt.sections import Section, section
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.documents.chunking import joined, passages_of
from foremind.retrieval.documents.document_index import DocumentIndex
from foremind.retrieval.documents.text_extraction import text_of
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.layer_cache import DraftRecall
from foremind.retrieval.layer_recall import TOPIC_COSINE
from foremind.retrieval.similarity_calibration import calibrated
from foremind.runtime.supervision import SupervisedLoop, Supervisor, begin, stop
from foremind.storage.document_store import DocumentStore
from foremind.storage.notifications import Announcement

_HELD = 200  # companions, each with at most `documents.MOST_CHUNKS` chunks
_KNOWN = 10_000  # companions of which is known how often a document was deleted
_IN_A_THREAD = 1_000  # chunks: a long draft in more of them would hold up everybody else
_AGAIN_S = 5.0
_BROKEN = 1000  # documents that could not be embedded, and are left alone until a restart

_log = structlog.get_logger("foremind.retrieval")


class Library:
    """Holds the shelves of companions in use, and embeds what is new, one document at a time."""

    def __init__(
        self,
        store: DocumentStore,
        embedder: EmbeddingService,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._clock = clock
        self._shelves: LRUCache[int, DocumentIndex] = LRUCache(_HELD)
        self._deleted: LRUCache[int, int] = LRUCache(_KNOWN)
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._something = asyncio.Event()
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._broken: LRUCache[int, None] = LRUCache(_BROKEN)

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("library", self._embed_on)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        await stop(*self._reading.values())

    def may_have_documents(self, companion_id: int) -> bool:
        """Tell whether it is worth asking: not where a shelf is held that has nothing on it."""
        shelf = self._shelves.get(companion_id)
        return shelf is None or bool(shelf.chunks)

    def deleted(self, companion_id: int) -> int:
        """Return how often documents of a companion were deleted, as far as this process knows."""
        return int(self._deleted.get(companion_id, 0))

    async def load(self, companion_id: int) -> None:
        """Read a companion's documents, unless they are held."""
        if companion_id not in self._shelves:
            self._read(companion_id)
        if (reading := self._reading.get(companion_id)) is not None:
            await asyncio.wait({reading})

    async def add(self, companion_id: int, title: str, media_type: str, body: bytes) -> int:
        """Store a document and have it embedded; return its id.

        Raises:
            InvalidMessage: it is of no known type, or holds no text.
        """
        chunks = await asyncio.to_thread(lambda: passages_of(text_of(body, media_type)))
        now = self._clock.now()
        document_id = await self._store.add(companion_id, title, media_type, chunks, now)
        await self._store.announce(companion_id)
        self._something.set()
        return document_id

    async def recall(self, companion_id: int, draft: DraftRecall) -> Section:
        """Return what the documents have for a draft, reading them where they are not held.

        Raises:
            StorageUnavailable: they could not be read.
        """
        if companion_id not in self._shelves:
            await self.load(companion_id)
        shelf = self._shelves.get(companion_id)
        if shelf is None:
            raise StorageUnavailable("The documents could not be read; try again shortly.")
        if len(shelf.chunks) < _IN_A_THREAD:
            lines = _lines(shelf, draft)
        else:
            lines = await asyncio.to_thread(_lines, shelf, draft)
        return section("library", lines, counter_for(draft.policy.tokenizer))

    def heard(self, announcement: Announcement) -> None:
        """Learn that documents of a companion changed."""
        if isinstance(announcement, LibraryChanged):
            whose = announcement.companion_id
            held = whose in self._shelves
            if announcement.gone:  # nothing of it is found from now on
                self._deleted[whose] = self.deleted(whose) + 1
                self._shelves.pop(whose, None)
            if held:
                self._read(whose)
            self._something.set()

    async def forget(self) -> None:
        """Read every shelf anew, after announcements may have been missed."""
        for companion_id in list(self._shelves):
            self._read(companion_id)

    def _read(self, companion_id: int) -> None:
        before = self._reading.get(companion_id)
        task = begin(self._update(companion_id, before), "library-read")
        self._reading[companion_id] = task
        task.add_done_callback(lambda done: self._read_done(companion_id, done))

    def _read_done(self, companion_id: int, task: asyncio.Task[None]) -> None:
        if self._reading.get(companion_id) is task:
            del self._reading[companion_id]

    async def _update(self, companion_id: int, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        least = calibrated(self._embedder.manifest, TOPIC_COSINE)
        while True:
            deleted = self.deleted(companion_id)
            try:
                chunks = await self._store.chunks(companion_id)
            except ForemindError as error:
                _log.warning("library.not_read", reason=error.code)
                return
            shelf = await asyncio.to_thread(DocumentIndex, chunks, least)
            if deleted == self.deleted(companion_id):  # else it may hold what is deleted since
                self._shelves[companion_id] = shelf
                return

    async def embed_all(self) -> None:
        """Cut and embed what waits for it."""
        for document_id, companion_id in await self._store.cut_before():
            await self._cut_anew(document_id, companion_id)
            self._something.set()
        for document_id, companion_id in await self._store.unfinished():
            if document_id not in self._broken:
                await self._embed_one(document_id, companion_id)

    async def _embed_on(self, loop: SupervisedLoop) -> None:
        self._something.set()  # what was not finished before a restart
        while True:
            await self._something.wait()
            self._something.clear()
            await self.embed_all()
            loop.well()

    async def _cut_anew(self, document_id: int, companion_id: int) -> None:
        """Cut a document as documents are cut now; its text is in its chunks."""
        chunks = await self._store.contents(document_id)
        passages = await asyncio.to_thread(lambda: passages_of(joined(chunks)))
        await self._store.cut_anew(document_id, passages)
        await self._store.announce(companion_id)
        _log.info("document.cut_anew", document_id=document_id)

    async def _embed_one(self, document_id: int, companion_id: int) -> None:
        try:
            await self._embed(document_id)
            await self._store.announce(companion_id)
        except StorageUnavailable:
            raise
        except TemporaryError as error:  # others need the model more
            _log.warning("library.waits", reason=error.code)
            await self._clock.sleep(_AGAIN_S)
            self._something.set()
        except Exception:  # a defect that one document shows must not keep the others waiting
            _log.exception("document.not_embedded", document_id=document_id)
            self._broken[document_id] = None

    async def _embed(self, document_id: int) -> None:
        for chunk_id, content in await self._store.to_embed(document_id):
            await self._store.keep_vector(chunk_id, await self._embedder.embed_passage(content))
        _log.info("document.embedded", document_id=document_id)


def _lines(shelf: DocumentIndex, draft: DraftRecall) -> list[QuotedLine]:
    found = shelf.search(draft.text, draft.vector)
    return [line((f"- from {quoted(each.title)}: ", each.content)) for each in found]
