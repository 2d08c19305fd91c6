"""Memory search: in process, in the database, and against plain pgvector with full text."""

from typing import Any

import numpy as np
from pgvector import HalfVector

from foremind.app.core import Core, core
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.domain.turn import OpenedSession
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.search import Query, RankedSearch
from foremind_eval.benchmarks.figures import (
    ROUNDS,
    Figure,
    Say,
    clear_database,
    measure_interleaved,
    timing_figure,
)
from foremind_eval.seeding import fill, owner_connection, sample_words

_SEARCH_SIZES = (1_000, 10_000, 100_000)
_TABLE = 100_000
_INDEX_BYTES = 1 << 30


async def bench_search(settings: Settings, say: Say) -> list[Figure]:
    """Compare the server's search, in process and in the database, with plain pgvector."""
    figures = []
    for size in _SEARCH_SIZES:
        say(f"Filling a table of {_TABLE:,} memories, {size:,} of one relationship ...")
        async with core(settings, say=lambda _: None) as parts:
            session = await fill(parts, parts.runtime.clock.now(), own=size, others=_TABLE - size)
            await _create_plain_text_index(parts)
            figures += await _search_figures(parts, session, size)
            await clear_database(parts)
    return figures


async def _search_figures(parts: Core, session: OpenedSession, size: int) -> list[Figure]:
    rng = np.random.default_rng(1)
    # The recall gate would decide that made-up words need no memories.
    policy = policy_for(CompanionSettings(recall_gate=False), parts.runtime.settings).recall

    def query() -> Query:
        vector = rng.standard_normal(parts.embedder.manifest.dimension).astype(np.float32)
        return Query(
            session.relationship_id,
            " ".join(sample_words(rng, 5)),
            vector / np.linalg.norm(vector),
            policy,
            parts.runtime.clock.now(),
        )

    async with (
        IndexedCandidates(parts.stores.memories, _INDEX_BYTES, parts.runtime.metrics) as index,
        owner_connection(parts) as owner,  # `plain` is not one of the server's tables
    ):
        await index.wait_until_current(session.relationship_id)
        indexed = RankedSearch(index)

        queries = iter([query() for _ in range(4 * ROUNDS)])

        async def in_process() -> object:
            return await indexed.search(next(queries))

        async def in_database() -> object:
            return await parts.search.search(next(queries))

        async def plain() -> object:
            return await _plain_search(owner, next(queries))

        # In pairs: a third search would only evict the other two's data from the CPU caches.
        process_ms, paired_database_ms = await measure_interleaved([in_process, in_database])
        database_ms, plain_ms = await measure_interleaved([in_database, plain])
    name = f"{size:,} of {_TABLE:,}"
    return [
        timing_figure(
            f"search {name} in the process", "the same in the database",
            process_ms, paired_database_ms,
        ),
        timing_figure(
            f"search {name} in the database", "pgvector scan, then ts_rank", database_ms, plain_ms
        ),
    ]  # fmt: skip


async def _create_plain_text_index(parts: Core) -> None:
    """Create the obvious alternative: a tsvector for each memory, indexed by relationship."""
    async with owner_connection(parts) as raw:
        await raw.execute(
            "CREATE TABLE plain AS SELECT id, relationship_id, content, embedding, "
            "to_tsvector('english', content) AS words FROM memories"
        )
        await raw.execute("CREATE INDEX ON plain (relationship_id)")
        await raw.execute("VACUUM ANALYZE plain")


async def _plain_search(owner: Any, query: Query) -> object:
    nearest = await owner.fetch(
        "SELECT id, content FROM plain WHERE relationship_id = $1 "
        "ORDER BY embedding <=> $2 LIMIT 40",
        query.relationship_id,
        HalfVector(query.vector),
    )
    lexical = await owner.fetch(
        "SELECT id, content FROM plain, to_tsquery('english', $2) AS wanted "
        "WHERE relationship_id = $1 AND words @@ wanted "
        "ORDER BY ts_rank(words, wanted) DESC LIMIT 40",
        query.relationship_id,
        query.text.replace(" ", " | "),
    )
    return nearest, lexical
