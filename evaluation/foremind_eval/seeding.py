"""Bulk-load synthetic memories, for query plans and benchmarks at realistic sizes."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import numpy as np
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from foremind.app.core import Core
from foremind.domain.companion import CompanionFile
from foremind.domain.record import Details, NewRecord, RecordLayer
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.turn import OpenedSession
from foremind.text.tokenization import pack_terms

_VOCABULARY = 5000
# Zipf-Mandelbrot without stop words: the most frequent word is in a tenth of the memories.
_PROBABILITIES = 1 / (np.arange(1, _VOCABULARY + 1) + 30.0) ** 1.1
_PROBABILITIES /= _PROBABILITIES.sum()
_WORDS_PER_MEMORY = 12
# As in LoCoMo: a context window adds twice as many words, each with a quarter of the weight.
_WINDOW_RATIO, _WINDOW_WEIGHT = 2.0, 0.25
# Layer, number of records, words per record.
_RECORDS_OF_A_YEAR: tuple[tuple[RecordLayer, int, int], ...] = (
    ("hot", 1, 500), ("summary", 1, 80), ("opening", 1, 50), ("profile", 20, 8),
    ("scratchpad", 60, 10), ("episodes", 300, 60), ("topics", 100, 80), ("questions", 50, 12),
    ("vault", 50, 12),
)  # fmt: skip
_OTHER_USERS = 40
_BATCH = 5000
_STATEMENT_TIMEOUT_S = 600.0  # enough on a slow disk
_COLUMNS = (
    "relationship_id", "id", "created_at", "significance", "term_count", "memory_type", "speaker",
    "embedding", "content", "version", "words",
)  # fmt: skip


def sample_words(rng: np.random.Generator, count: int) -> list[str]:
    """Draw words with the frequencies of natural language."""
    return [f"word{index}" for index in rng.choice(_VOCABULARY, count, p=_PROBABILITIES)]


@asynccontextmanager
async def owner_connection(core: Core, *, vectors: bool = True) -> AsyncIterator[Any]:
    """Connect as the tables' owner, past row-level security, with a timeout of minutes.

    Args:
        vectors: whether they are read and written; to learn their types takes three statements.
    """
    raw = await asyncpg.connect(core.database_url, command_timeout=_STATEMENT_TIMEOUT_S)
    try:
        if vectors:
            await register_vector(raw)
        yield raw
    finally:
        await raw.close()


async def put_minds(core: Core, slugs: Iterable[str], name: str = "") -> None:
    """Create characters that have one mind for all players of a world; named as `name` or slug."""
    for slug in slugs:
        called = name or slug.title()
        shared = CompanionSettings(mind="world")
        await core.stores.companions.put(
            CompanionFile(slug, called, f"You are {called}.", settings=shared)
        )


async def fill(core: Core, now: datetime, *, own: int, others: int) -> OpenedSession:
    """Store `own` memories of one user among `others` of other users; return its session.

    Vectors are random unit vectors, ages up to 80 days, significance 0.3 to 1.
    """
    companion = await core.stores.companions.put(CompanionFile("seeded", "Seeded", "Made up."))
    session = await core.stores.turns.open_session("seeded", "Seeded", companion.id, now)
    neighbours = [
        await core.stores.turns.open_session(f"neighbour {number}", "N", companion.id, now)
        for number in range(_OTHER_USERS)
    ]
    rng = np.random.default_rng(0)
    owners = np.array(
        [session.relationship_id] * own
        + [neighbours[number % _OTHER_USERS].relationship_id for number in range(others)]
    )
    rng.shuffle(owners)
    async with owner_connection(core) as raw:
        for first in range(0, len(owners), _BATCH):
            batch = owners[first : first + _BATCH]
            memories, terms = _rows(rng, batch, first + 1, now, core.embedder.manifest.dimension)
            await raw.copy_records_to_table("memories", records=memories, columns=_COLUMNS)
            await raw.copy_records_to_table("memory_terms", records=terms)
        await raw.execute(
            "UPDATE relationships AS relationship "
            "SET memory_count = own.memories, term_count = own.terms "
            "FROM (SELECT relationship_id, count(*) AS memories, sum(term_count) AS terms "
            "FROM memories GROUP BY 1) AS own WHERE own.relationship_id = relationship.id"
        )
        # The ids were set explicitly: advance the sequence past them.
        await raw.execute(
            "SELECT setval(pg_get_serial_sequence('memories', 'id'), max(id)) FROM memories"
        )
        # As autovacuum would do within minutes.
        await raw.execute("VACUUM ANALYZE memories")
        await raw.execute("VACUUM ANALYZE memory_terms")
    return session


async def fill_layers(core: Core, session: OpenedSession, now: datetime) -> None:
    """Store as many records of every layer as a year of conversation produces."""
    rng = np.random.default_rng(2)

    def text(words: int) -> str:
        return " ".join(sample_words(rng, words))

    async with core.stores.records.begin_changes(session.relationship_id, now) as changes:
        for layer, count, words in _RECORDS_OF_A_YEAR:
            for number in range(count):
                vector = rng.standard_normal(core.embedder.manifest.dimension).astype(np.float32)
                await changes.add(
                    NewRecord(
                        layer=layer,
                        content=text(words),
                        made_by="rules",
                        title=f"word{number}",
                        kind="other",
                        refs=(f"word{number}",),
                        details=Details(status="open", sessions=3),
                        vector=vector / np.linalg.norm(vector),
                    )
                )


def _rows(
    rng: np.random.Generator, owners: "np.ndarray", first_id: int, now: datetime, dimension: int
) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    vectors = rng.standard_normal((len(owners), dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    memories: list[tuple[object, ...]] = []
    terms: list[tuple[object, ...]] = []
    for index, owner in enumerate(map(int, owners)):
        content = sample_words(rng, _WORDS_PER_MEMORY)
        window = sample_words(rng, round(_WORDS_PER_MEMORY * _WINDOW_RATIO))
        frequencies = dict.fromkeys(window, _WINDOW_WEIGHT) | {
            word: float(content.count(word)) for word in content
        }
        memory_id = first_id + index
        memories.append(
            (owner, memory_id, now - timedelta(days=float(rng.uniform(0, 80))),
             float(rng.uniform(0.3, 1)), len(content) * (1 + _WINDOW_RATIO * _WINDOW_WEIGHT),
             "conversation", "user", HalfVector(vectors[index]), " ".join(content), 0,
             pack_terms(frequencies))
        )  # fmt: skip
        terms += [(owner, word, memory_id, frequency) for word, frequency in frequencies.items()]
    return memories, terms
