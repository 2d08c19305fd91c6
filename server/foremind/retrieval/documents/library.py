"""The reference library: a companion's documents, independent of any user.

A document is shared by all users of the companion. Lexical search finds it as soon as it is stored,
vector search once the background task has embedded it.
"""

import asyncio
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from sys import getsizeof
from typing import Self

import numpy as np
import numpy.typing as npt
import structlog
from cachetools import LRUCache

from foremind.domain.announcements import Announcement, LibraryChanged
from foremind.domain.clock import Clock
from foremind.domain.companion import Chunk
from foremind.domain.errors import (
    ForemindError,
    StorageUnavailable,
    TemporaryError,
)
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.llm.prompt.sections import Section, section
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.documents import text_extraction
from foremind.retrieval.documents.chunking import split_into_chunks
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.index.memory_index import Vectors
from foremind.retrieval.ranking import Numbers, idf, length_norms, saturated
from foremind.retrieval.relationship_layers import MIN_TOPIC_COSINE, LayerQuery
from foremind.runtime.caches import ByteBoundedCache
from foremind.runtime.reader_process import reading
from foremind.runtime.supervision import SupervisedLoop, Supervisor, begin, stop
from foremind.storage.companion_store import DocumentStore
from foremind.text.languages.prompt_words import prompt_words
from foremind.text.tokenization import count_terms, names_in, terms_of
from foremind_models import calibrated_cosine

_MAX_RESULTS = 3
_CANDIDATES = 20
# The constant of reciprocal rank fusion (Cormack, Clarke, Buettcher 2009, SIGIR).
_RRF = 60
_CHUNK_BYTES = 100  # what a chunk's object occupies in addition to its text
# A chunk found by its terms alone must contain more than this share of the query's terms, or of its
# own length if it has fewer terms than the query.
_MIN_SHARED = 0.5


class DocumentIndex:
    """The chunks of one companion's documents, ready to be searched.

    Args:
        min_cosine: the cosine from which a chunk counts as near a query.
    """

    def __init__(self, chunks: Sequence[Chunk], min_cosine: float) -> None:
        self._min_cosine = min_cosine
        packed = [
            (row, chunk.packed) for row, chunk in enumerate(chunks) if chunk.packed is not None
        ]
        self._with_vector = np.array([row for row, _ in packed], np.int64)
        self._vectors = Vectors([vector for _, vector in packed])
        # The vectors are kept in one array instead.
        self.chunks = [replace(chunk, packed=None) for chunk in chunks]
        self._terms = InvertedIndex(
            [count_terms(f"{chunk.title} {chunk.content}") for chunk in chunks]
        )

    @property
    def size_bytes(self) -> int:
        """Approximate memory use."""
        texts = sum(getsizeof(chunk.content) + _CHUNK_BYTES for chunk in self.chunks)
        return texts + self._vectors.size_bytes + self._terms.size_bytes

    def search(self, text: str, vector: npt.NDArray[np.float32]) -> list[Chunk]:
        """Return the best chunks by reciprocal rank fusion of cosine and BM25."""
        nearest = self._nearest(vector)
        lexical = self._lexical_matches(text, nearest)
        scores: dict[int, float] = {}
        for ranking in (nearest, lexical):
            for rank, row in enumerate(ranking, 1):
                scores[row] = scores.get(row, 0.0) + 1 / (_RRF + rank)
        order = sorted(scores, key=lambda row: (-scores[row], row))
        return [self.chunks[row] for row in order[:_MAX_RESULTS]]

    def _lexical_matches(self, text: str, nearest: Collection[int]) -> list[int]:
        """Return the best rows by BM25 that are also near, share many terms, or share a name."""
        terms = set(terms_of(text))
        names = set(terms_of(" ".join(names_in(text))))
        rows = self._terms.best(terms, _CANDIDATES)
        shares = self._terms.shared(terms, rows) / self._terms.max_shared(terms, rows)
        shares_name = self._terms.shared(names, rows) > 0
        matches = shares_name | (shares > _MIN_SHARED)
        return [
            row for row, is_match in zip(rows, matches, strict=True) if is_match or row in nearest
        ]

    def _nearest(self, vector: npt.NDArray[np.float32]) -> list[int]:
        if not len(self._vectors):
            return []
        approximate, max_error = self._vectors.cosines(vector)
        minimum = max(self._min_cosine, _nth_highest(approximate, _CANDIDATES)) - 2 * max_error
        candidates = np.flatnonzero(approximate >= minimum)
        cosines = self._vectors.exact(candidates, vector)
        order = np.argsort(-cosines, kind="stable")[:_CANDIDATES]
        nearest = candidates[order[cosines[order] >= self._min_cosine]]
        return [int(row) for row in self._with_vector[nearest]]


class InvertedIndex:
    """Posting lists of chunks in flat arrays: a term's rows and frequencies are contiguous."""

    def __init__(self, chunks: Sequence[Mapping[str, int]]) -> None:
        self._count = len(chunks)
        self._term_ids: dict[str, int] = {}
        term_ids, rows, frequencies = array("i"), array("i"), array("h")
        for row, terms in enumerate(chunks):
            term_ids.extend(self._term_ids.setdefault(term, len(self._term_ids)) for term in terms)
            rows.extend(repeat(row, len(terms)))
            frequencies.extend(terms.values())
        by_term = np.argsort(np.asarray(term_ids, np.int32), kind="stable")
        self._rows = np.asarray(rows, np.int32)[by_term]
        self._frequencies = np.asarray(frequencies, np.int16)[by_term]
        document_frequencies = np.bincount(
            np.asarray(term_ids, np.int32), minlength=len(self._term_ids)
        )
        self._ends = np.cumsum(document_frequencies)
        self._starts = self._ends - document_frequencies
        self._lengths = np.array([sum(terms.values()) for terms in chunks], np.float64)
        mean_length = self._lengths.sum() / max(1, self._count)
        self._norms = length_norms(self._lengths, mean_length or 1.0)

    @property
    def size_bytes(self) -> int:
        """Memory use of the posting lists."""
        return (
            self._rows.nbytes + self._frequencies.nbytes + self._lengths.nbytes + self._norms.nbytes
        )

    def best(self, terms: Collection[str], limit: int) -> list[int]:
        """Return the chunks with the highest BM25 that contain a query term, best first."""
        return _best_positive(self.scores(terms), limit)

    def scores(self, terms: Collection[str]) -> Numbers:
        """Return the BM25 of every chunk for distinct query terms, float64 [chunks]."""
        scores = np.zeros(self._count)
        for term in sorted(terms):
            term_id = self._term_ids.get(term)
            if term_id is not None:
                self._add_term(term_id, scores)
        return scores

    def shared(self, terms: Collection[str], rows: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return how many of the query terms each of `rows` contains."""
        shared = np.zeros(len(rows), np.int64)
        for term in terms:
            term_id = self._term_ids.get(term)
            if term_id is not None:
                postings = self._rows[self._starts[term_id] : self._ends[term_id]]  # sorted
                positions = np.minimum(np.searchsorted(postings, rows), len(postings) - 1)
                shared += postings[positions] == rows
        return shared

    def max_shared(self, terms: Collection[str], rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return how many of the query terms each of `rows` could contain, given its length."""
        return np.asarray(np.minimum(self._lengths[list(rows)], len(terms)))

    def _add_term(self, term_id: int, scores: Numbers) -> None:
        """Add one term's BM25 to the chunks that contain it."""
        postings = slice(self._starts[term_id], self._ends[term_id])
        rows, frequencies = self._rows[postings], self._frequencies[postings].astype(np.float64)
        scores[rows] += idf(len(rows), self._count) * saturated(frequencies, self._norms[rows])


def _nth_highest(scores: npt.NDArray[np.float32], n: int) -> float:
    """Return the nth highest score, or the lowest if there are fewer."""
    place = max(0, len(scores) - n)
    return float(np.partition(scores, place)[place])


def _best_positive(scores: Numbers, limit: int) -> list[int]:
    """Return the positions of the highest scores above 0, best first; ties in order."""
    if len(scores) > limit:
        minimum = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        candidates = np.flatnonzero((scores >= minimum) & (scores > 0))
    else:
        candidates = np.flatnonzero(scores > 0)
    order = np.argsort(-scores[candidates], kind="stable")[:limit]
    return [int(row) for row in candidates[order]]


# Of all loaded indexes. One of the most chunks that a companion may have takes 150 MB of English.
_MAX_BYTES = 512 * 1024 * 1024
_MAX_TRACKED = 10_000  # companions whose number of document deletions is remembered
_MIN_THREADED = 1_000  # chunks; searching more for a long draft would block the event loop
_RETRY_S = 5.0
_MAX_READING = 2  # documents at once, each in a process of its own
_MAX_READ_S = 60.0
_MAX_BROKEN = 1000  # documents that failed to embed and are skipped until a restart

_log = structlog.get_logger("foremind.retrieval")


class Library:
    """Caches the document indexes of companions in use, and embeds new documents one by one."""

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
        self._indexes: ByteBoundedCache[int, DocumentIndex] = ByteBoundedCache(
            _MAX_BYTES, lambda index: index.size_bytes
        )
        self._deletions: LRUCache[int, int] = LRUCache(_MAX_TRACKED)
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._work_available = asyncio.Event()
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._reading_document = asyncio.Semaphore(_MAX_READING)
        self._broken: LRUCache[int, None] = LRUCache(_MAX_BROKEN)
        self._too_large: LRUCache[int, None] = LRUCache(_MAX_TRACKED)

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("library", self._embed_forever)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        await stop(*self._reading.values())

    def may_have_documents(self, companion_id: int) -> bool:
        """Return whether a search may find anything: false only if an empty index is loaded."""
        index = self._indexes.get(companion_id)
        return index is None or bool(index.chunks)

    def deletion_count(self, companion_id: int) -> int:
        """Return how many document deletions of a companion this process knows of."""
        return int(self._deletions.get(companion_id, 0))

    async def load(self, companion_id: int) -> None:
        """Load the index of a companion's documents, unless it is loaded."""
        if companion_id not in self._indexes:
            self._read(companion_id)
        if (reading := self._reading.get(companion_id)) is not None:
            await asyncio.wait({reading})

    async def add(self, companion_id: int, title: str, media_type: str, body: bytes) -> int:
        """Store a document and schedule its embedding; return its id.

        Raises:
            UnsupportedMediaType: the media type is not supported.
            InvalidMessage: the document contains no text, or takes too long to read.
        """
        async with self._reading_document:
            text = await _text_of(body, media_type)
        chunks = await asyncio.to_thread(split_into_chunks, text)
        now = self._clock.now()
        document_id = await self._store.add(companion_id, title, media_type, chunks, now)
        self._work_available.set()
        return document_id

    async def recall(self, companion_id: int, draft: LayerQuery) -> Section:
        """Return the document chunks that match a draft, loading the index if necessary.

        Raises:
            StorageUnavailable: the documents could not be read.
        """
        if companion_id not in self._indexes and companion_id not in self._too_large:
            await self.load(companion_id)
        index = self._indexes.get(companion_id)
        if index is None:
            raise StorageUnavailable("The documents could not be read; try again shortly.")
        if len(index.chunks) < _MIN_THREADED:
            lines = _lines(index, draft)
        else:
            lines = await asyncio.to_thread(_lines, index, draft)
        return section("library", lines, counter_for(draft.policy.tokenizer))

    def on_announcement(self, announcement: Announcement) -> None:
        """Reload the index of a companion whose documents changed; evict it first on a deletion."""
        if isinstance(announcement, LibraryChanged):
            companion_id = announcement.companion_id
            loaded = companion_id in self._indexes
            if announcement.gone:  # a deleted document must not be found any more
                self._deletions[companion_id] = self.deletion_count(companion_id) + 1
                self._indexes.pop(companion_id, None)
            if loaded:
                self._read(companion_id)
            self._work_available.set()

    def _read(self, companion_id: int) -> None:
        previous = self._reading.get(companion_id)
        task = begin(self._update(companion_id, previous), "library-read")
        self._reading[companion_id] = task
        task.add_done_callback(lambda done: self._on_read_done(companion_id, done))

    def _on_read_done(self, companion_id: int, task: asyncio.Task[None]) -> None:
        if self._reading.get(companion_id) is task:
            del self._reading[companion_id]

    async def _update(self, companion_id: int, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        min_cosine = calibrated_cosine(self._embedder.manifest, MIN_TOPIC_COSINE)
        while True:
            deletions = self.deletion_count(companion_id)
            try:
                chunks = await self._store.chunks(companion_id)
            except ForemindError as error:
                _log.warning("library.not_read", reason=error.code)
                return
            index = await asyncio.to_thread(DocumentIndex, chunks, min_cosine)
            if deletions == self.deletion_count(
                companion_id
            ):  # else it may contain a deleted document
                self._keep(companion_id, index)
                return

    def _keep(self, companion_id: int, index: DocumentIndex) -> None:
        self._too_large.pop(companion_id, None)
        if not self._indexes.put(companion_id, index):
            self._too_large[companion_id] = None
            _log.warning("library.too_large", companion_id=companion_id)

    async def embed_pending(self) -> None:
        """Embed pending documents."""
        for document_id, companion_id in await self._store.documents_to_embed():
            if document_id not in self._broken:
                await self._embed_one(document_id, companion_id)

    async def _embed_forever(self, loop: SupervisedLoop) -> None:
        self._work_available.set()  # for documents left unfinished by a restart
        while True:
            await self._work_available.wait()
            self._work_available.clear()
            await self.embed_pending()
            loop.report_progress()

    async def _embed_one(self, document_id: int, companion_id: int) -> None:
        try:
            await self._embed(document_id)
            await self._store.announce_embedded(companion_id)
        except StorageUnavailable:
            raise
        except TemporaryError as error:  # more urgent texts need the model
            _log.warning("library.waits", reason=error.code)
            await self._clock.sleep(_RETRY_S)
            self._work_available.set()
        except Exception:  # one document must not block the others
            _log.exception("document.not_embedded", document_id=document_id)
            self._broken[document_id] = None

    async def _embed(self, document_id: int) -> None:
        for chunk_id, content in await self._store.chunks_to_embed(document_id):
            await self._store.store_chunk_vector(
                chunk_id, await self._embedder.embed_passage(content)
            )
        _log.info("document.embedded", document_id=document_id)


async def _text_of(body: bytes, media_type: str) -> str:
    """Return the text of a document, which a process of its own reads.

    Raises:
        UnsupportedMediaType: the media type is not supported.
        InvalidMessage: the document contains no text, or takes too long to read.
    """
    text_extraction.check_media_type(media_type)
    async with reading(
        text_extraction.__name__, media_type, given=[body], max_s=_MAX_READ_S
    ) as text:
        return (await asyncio.to_thread(text.read)).decode()


def _lines(index: DocumentIndex, draft: LayerQuery) -> list[QuotedLine]:
    chunks = index.search(draft.text, draft.vector)
    template = prompt_words(draft.prompt_language).lines.document
    return [
        line((f"- {template.format(title=quoted(chunk.title))}: ", chunk.content))
        for chunk in chunks
    ]
