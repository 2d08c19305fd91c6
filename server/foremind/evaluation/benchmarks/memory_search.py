"""Search: in the process, in the database, and what one would build first."""

from typing import Any

import numpy as np
from pgvector import HalfVector

from foremind.app import Core, core
from foremind.domain.companion import CompanionSettings
from foremind.domain.policy import policy_for
from foremind.domain.settings import Settings
from foremind.domain.turn import OpenedSession
from foremind.evaluation.benchmarks.figures import ROUNDS, Figure, Say, empty, figure, in_turn
from foremind.evaluation.seeding import fill, owner_connection, words_said
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.search import Query, RankedSearch

_SEARCH_SIZES = (1_000, 10_000, 100_000)
_TABLE = 100_000
_INDEX_BYTES = 1 << 30


async def bench_search(settings: Settings, say: Say) -> list[Figure]:
    """The gateway's search, in the process and in the database, against plain pgvector."""
    figures = []
    for size in _SEARCH_SIZES:
        say(f"Filling a table of {_TABLE:,} memories, {size:,} of one relationship ...")
        async with core(settings, say=lambda _: None) as parts:
            session = await fill(parts, parts.clock.now(), own=size, others=_TABLE - size)
            await _create_plain_text_index(parts)
            figures += await _search_figures(parts, session, size)
            await empty(parts)
    return figures


async def _search_figures(parts: Core, session: OpenedSession, size: int) -> list[Figure]:
    rng = np.random.default_rng(1)
    # Made-up words ask for nothing: the gate would keep them from being searched at all.
    policy = policy_for(CompanionSettings(recall_gate=False), parts.settings).recall

    def query() -> Query:
        vector = rng.standard_normal(parts.embedder.manifest.dimension).astype(np.float32)
        return Query(
            session.relationship_id,
            " ".join(words_said(rng, 5)),
            vector / np.linalg.norm(vector),
            policy,
            parts.clock.now(),
        )

    async with (
        IndexedCandidates(parts.memories, _INDEX_BYTES, parts.metrics) as index,
        owner_connection(parts) as owner,  # the table of the plain search is its own
    ):
        await index.loaded(session.relationship_id)
        indexed = RankedSearch(index)

        asked = iter([query() for _ in range(4 * ROUNDS)])

        async def in_process() -> object:
            return await indexed.search(next(asked))

        async def in_database() -> object:
            return await parts.search.search(next(asked))

        async def plain() -> object:
            return await _plain_search(owner, next(asked))

        # Two by two: a third would only push what each reads out of the processor's caches.
        ours, beside_ours = await in_turn([in_process, in_database])
        stored, theirs = await in_turn([in_database, plain])
    name = f"{size:,} of {_TABLE:,}"
    return [
        figure(f"search {name} in the process", "the same in the database", ours, beside_ours),
        figure(f"search {name} in the database", "pgvector scan, then ts_rank", stored, theirs),
    ]


async def _create_plain_text_index(parts: Core) -> None:
    """What one would build first: a tsvector beside each memory, found by relationship."""
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
    worded = await owner.fetch(
        "SELECT id, content FROM plain, to_tsquery('english', $2) AS wanted "
        "WHERE relationship_id = $1 AND words @@ wanted "
        "ORDER BY ts_rank(words, wanted) DESC LIMIT 40",
        query.relationship_id,
        query.text.replace(" ", " | "),
    )
    return nearest, worded
