"""The store on real PostgreSQL: migrations, idempotent writes, search, supersession, plans."""

import asyncio
import dataclasses
import json
import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from pgvector import HalfVector

from foremind.app.configuration import load_settings
from foremind.app.core import Core, core
from foremind.domain.companion import CompanionFile
from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.errors import DatabaseUnsuitable, StorageUnavailable
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.domain.turn import ExchangeTurn, OpenedSession, Speaker
from foremind.memory.contextual_embedding import contextual_text
from foremind.retrieval.embedding.service import Priority
from foremind.retrieval.search import Query
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureTransaction
from foremind.storage.migrations import load_migrations, migrate, status
from foremind.storage.named_queries import load_queries
from foremind_eval.doubles.random_model import write_random_model
from foremind_eval.seeding import fill, sample_words
from foremind_models import Prefixes, describe_folder, prepare_model
from tests.conftest import CommitsOnly, eventually_async, owner_of

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
DEFAULT = policy_for(CompanionSettings(), load_settings()).recall
# Without filters: all memories, ranked by 70 % vector and 30 % lexical score.
OPEN = dataclasses.replace(
    DEFAULT,
    significance_threshold=0.0,
    significance_weight=0.0,
    gate=False,
    min_score=0.0,
    min_share=0.0,
)


async def open_session(parts: Core, user: str = "ana", **settings: object) -> OpenedSession:
    """Open a session of `user` with a companion of these settings, who remembers all replies."""
    own = CompanionSettings(**{"remember_replies": "all", **settings})
    companion = await parts.stores.companions.put(
        CompanionFile("mara", "Mara", "A persona.", settings=own)
    )
    return await parts.stores.turns.open_session(user, user.title(), companion.id, NOW)


async def say(
    parts: Core, session: OpenedSession, text: str, said_at: datetime = NOW, number: int = 0
) -> int | None:
    """Store a message and ingest it; return the id of its memory, if it has one."""
    message_id = f"{number}-{text}"[:100]
    turn = await parts.stores.turns.commit_message(session, message_id, text, said_at)
    announced = await parts.ingester.ingest(session.relationship_id, turn.id)
    return announced.memory_id if announced else None


async def recall(
    parts: Core, session: OpenedSession, text: str, policy: RecallPolicy | None = None
) -> list[str]:
    """Return the contents of the memories recalled for a text."""
    policy = policy or OPEN
    vector = await parts.embedder.embed_query(text, Priority.ENTER)
    recalled = await parts.search.search(Query(session.relationship_id, text, vector, policy, NOW))
    return [memory.content for memory in recalled]


async def test_migrations_run_once(postgres: str, database_url: str) -> None:
    """A second run changes nothing, and the status shows all as applied."""
    assert await migrate(database_url) == []
    applied, waiting = await status(database_url)
    assert (applied, waiting) == (load_migrations(), [])


async def test_two_servers_may_migrate_at_once(postgres: str) -> None:
    """One migrates; the other waits, and then has nothing to do."""
    admin = await asyncpg.connect(postgres.replace("/foremind?", "/postgres?"))
    try:
        await admin.execute("CREATE DATABASE migrated_twice")
        url = postgres.replace("/foremind?", "/migrated_twice?")
        ran = await asyncio.gather(migrate(url), migrate(url))
        assert sorted(map(len, ran)) == [0, len(load_migrations())]
        await admin.execute("DROP DATABASE migrated_twice WITH (FORCE)")
    finally:
        await admin.close()


async def test_an_unreachable_database_is_a_clear_error() -> None:
    """For migrations and for the pool."""
    with pytest.raises(DatabaseUnsuitable, match="FOREMIND_DATABASE_URL"):
        await migrate("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StorageUnavailable):
        async with Database.connect(
            "postgresql://nobody@127.0.0.1:1/none", size=2, timeout_s=1, publisher=CommitsOnly()
        ):
            pass


async def test_a_message_and_its_wait_for_ingest_are_stored_once(built: Core) -> None:
    """The same id is the same turn, also concurrently."""
    session = await open_session(built)
    stored = await asyncio.gather(
        *(built.stores.turns.commit_message(session, "m1", "Hello", NOW) for _ in range(5))
    )
    assert len({turn.id for turn in stored}) == 1
    assert sum(not turn.duplicate for turn in stored) == 1
    waiting = await owner_of(built).fetch("SELECT step, turn_id FROM background_steps")
    assert [tuple(row) for row in waiting] == [("ingest", stored[0].id)]


async def test_message_ids_are_unique_per_user(built: Core) -> None:
    """Two users may use the same id."""
    ana, bo = await open_session(built, "ana"), await open_session(built, "bo")
    first = await built.stores.turns.commit_message(ana, "m1", "Hello", NOW)
    second = await built.stores.turns.commit_message(bo, "m1", "Hello", NOW)
    assert not second.duplicate
    assert first.id != second.id


async def test_ingesting_a_turn_twice_stores_one_memory(built: Core) -> None:
    """It may be ingested again after a crash."""
    session = await open_session(built)
    turn = await built.stores.turns.commit_message(session, "m1", "I promise to remember you", NOW)
    first, second = [
        await built.ingester.ingest(session.relationship_id, turn.id) for _ in range(2)
    ]
    assert first is not None
    assert second is not None
    assert first.memory_id == second.memory_id
    relationship = await owner_of(built).fetchrow(
        "SELECT memory_version, memory_count FROM relationships WHERE id = $1",
        session.relationship_id,
    )
    assert tuple(relationship) == (1, 1)
    assert await owner_of(built).fetchval("SELECT count(*) FROM memories") == 1


async def test_memories_do_not_depend_on_the_order_of_ingest(
    built: Core,
) -> None:
    """Each has its context window, including turns ingested later, twice, or not stored."""
    session = await open_session(built)
    texts = [
        "I promise to visit Porto",
        "When?",
        "I hope we will go in spring",
        "hmm",
        "remember the tickets",
        "I trust that you love trains",
    ]
    randomness = random.Random(3)
    turns: list[int] = []
    for number, text in enumerate(texts):
        if number % 2:
            turn = await built.stores.turns.commit_reply(session, None, "completed", text, NOW)
        else:
            turn = (await built.stores.turns.commit_message(session, f"m{number}", text, NOW)).id
        assert turn is not None
        turns.append(turn)
    order = [*turns, turns[2], turns[5]]
    randomness.shuffle(order)
    for turn in order:
        await built.ingester.ingest(session.relationship_id, turn)
    vectors = [await built.embedder.embed_passage(text) for text in texts]
    names: dict[Speaker, NDArray[np.float32]] = {
        "user": await built.embedder.embed_passage("Ana"),
        "companion": await built.embedder.embed_passage("Mara"),
    }
    window = [
        ExchangeTurn(turn, "companion" if number % 2 else "user", text, vector, None)
        for number, (turn, text, vector) in enumerate(zip(turns, texts, vectors, strict=True))
    ]
    rows = await owner_of(built).fetch(
        "SELECT id, source_turn_id, embedding, term_count FROM memories"
    )
    assert len(rows) == 4
    for row in rows:
        expected = contextual_text(window, turns.index(row["source_turn_id"]), names)
        assert float(expected.vector @ row["embedding"].to_numpy()) == pytest.approx(1.0, abs=2e-3)
        words = await owner_of(built).fetch(
            "SELECT term, frequency FROM memory_terms WHERE memory_id = $1", row["id"]
        )
        assert dict(map(tuple, words)) == pytest.approx(expected.terms)
        assert row["term_count"] == pytest.approx(expected.length)
    counted = await owner_of(built).fetchval("SELECT term_count FROM relationships")
    assert counted == pytest.approx(sum(row["term_count"] for row in rows))


async def test_a_short_answer_is_found_by_its_question(built: Core) -> None:
    """ "Yes, last Tuesday" has no meaning of its own."""
    session = await open_session(built, significance_threshold=0.0)
    for number, text in enumerate(
        ["Did you finish painting the lighthouse door?", "Yes, last Tuesday", "I had soup", "Nice"]
    ):
        await say(built, session, text, number=number)
    found = await recall(built, session, "the lighthouse painting")
    assert found[0] == "Yes, last Tuesday"


async def test_insignificant_messages_are_not_stored(built: Core) -> None:
    """With the examples of the documentation."""
    session = await open_session(built)
    assert await say(built, session, "hmm") is None
    assert await say(built, session, "I promise I'll help you with your garden tomorrow")
    content, significance = await owner_of(built).fetchrow(
        "SELECT content, significance FROM memories"
    )
    assert (content, round(significance, 2)) == (
        "I promise I'll help you with your garden tomorrow",
        0.65,
    )


async def test_search_combines_vectors_and_terms(built: Core) -> None:
    """Either alone would miss one of these memories."""
    session = await open_session(built, significance_threshold=0.0)
    for number, text in enumerate(
        ["The weather turned bad during our walk", "My boat is called Zephyrine", "I like tea"]
    ):
        await say(built, session, text, number=number)
    assert (await recall(built, session, "remember when it rained?"))[0].startswith("The weather")
    assert (await recall(built, session, "Zephyrine?"))[0].startswith("My boat")


async def test_relationships_never_mix(built: Core) -> None:
    """The same companion recalls only memories of the same user."""
    ana, bo = await open_session(built, "ana"), await open_session(built, "bo")
    await say(built, ana, "I promise to remember the red door")
    assert await recall(built, bo, "the red door") == []
    assert len(await recall(built, ana, "the red door")) == 1


async def test_age_and_significance_limit_what_is_recalled(built: Core) -> None:
    """Both filters apply before the limit, and both can be disabled."""
    session = await open_session(built, significance_threshold=0.0)
    await say(built, session, "An old boat", NOW - timedelta(days=91), 1)
    await say(built, session, "A plain boat", NOW - timedelta(days=1), 2)
    await say(built, session, "An important boat", NOW - timedelta(days=89), 3)
    filtered = dataclasses.replace(OPEN, significance_threshold=0.3)
    assert await recall(built, session, "boat", filtered) == ["An important boat"]
    of_any_age = dataclasses.replace(OPEN, max_age_days=None)
    assert len(await recall(built, session, "boat", of_any_age)) == 3


async def test_vectors_of_768_dimensions_are_stored_and_searched(
    settings: Settings, tmp_path: Path
) -> None:
    """With the same converter, schema and search."""
    folder = tmp_path / "hub"
    write_random_model(folder, dimension=768)
    models = tmp_path / "models"
    prepare_model(describe_folder("example/wide", folder, Prefixes()), models, print)
    wide = msgspec.structs.replace(
        settings, **{"embedding_model": "example/wide", "models_path": models}
    )
    async with core(wide) as parts:
        session = await open_session(parts, significance_threshold=0.0)
        await say(parts, session, "my garden is lovely", number=1)
        await say(parts, session, "the harbour boat", number=2)
        assert (await recall(parts, session, "the harbour boat"))[0] == "the harbour boat"
        width = await owner_of(parts).fetchval(
            "SELECT vector_dims(embedding) FROM memories LIMIT 1"
        )
    assert width == 768


async def test_a_search_in_a_large_table_reads_only_its_relationship(built: Core) -> None:
    """With 3,000 of 30,000 memories: index-only scans, and no sequential scan."""
    session = await fill(built, NOW, own=3_000, others=27_000)
    arguments: tuple[object, ...] = (
        session.relationship_id,
        HalfVector(np.ones(384) / np.sqrt(384)),
        ["word1", "word2", "word77"],
        0.3,
        NOW - timedelta(days=90),
        60,
        0.85,
        [],
        [],
    )
    async with owner_of(built).acquire() as raw:
        lines = await raw.fetch(
            "EXPLAIN (ANALYZE) " + load_queries()["memory_candidates"], *arguments
        )
    plan = "\n".join(line[0] for line in lines)
    assert "Index Only Scan using memories_by_embedding" in plan
    assert "Index Only Scan using memory_terms_pkey" in plan
    assert "Seq Scan on memories" not in plan
    assert "Seq Scan on memory_terms" not in plan


async def test_candidate_selection_loses_no_top_result(built: Core) -> None:
    """The top 10 equal those of scoring every memory of the relationship."""
    session = await fill(built, NOW, own=400, others=1_000)
    rng = np.random.default_rng(1)
    for _ in range(10):
        vector = rng.standard_normal(384).astype(np.float32)
        vector /= np.linalg.norm(vector)
        text = " ".join(sample_words(rng, 5))
        query = Query(session.relationship_id, text, vector, OPEN, NOW)
        recalled = await built.search.search(query)
        expected = await _score_all(built, query)
        assert [memory.relevance for memory in recalled] == pytest.approx(expected[:10], abs=2e-3)


async def _score_all(parts: Core, query: Query) -> list[float]:
    """Score every memory of a relationship with a plain implementation of BM25."""
    rows = await owner_of(parts).fetch(
        "SELECT embedding, jsonb_object_agg(term, frequency)::text AS words "
        "FROM memories JOIN memory_terms "
        "ON memory_terms.relationship_id = memories.relationship_id AND memory_id = memories.id "
        "WHERE memories.relationship_id = $1 GROUP BY memories.relationship_id, memories.id",
        query.relationship_id,
    )
    documents = [json.loads(row["words"]) for row in rows]
    lengths = [12 * 1.5] * len(rows)
    matrix = np.stack([row["embedding"].to_numpy() for row in rows]).astype(np.float32)
    cosines = np.clip(matrix @ query.vector, 0, 1)
    average = sum(lengths) / len(lengths)
    keyword = np.zeros(len(rows))
    idfs = []
    for term in query.text.split():
        document_frequency = sum(term in document for document in documents)
        idf = math.log(1 + (len(rows) - document_frequency + 0.5) / (document_frequency + 0.5))
        idfs.append(idf if document_frequency else 3.0)
        for index, document in enumerate(documents):
            count = document.get(term, 0)
            keyword[index] += (
                idf * count * 2.5 / (count + 1.5 * (0.25 + 0.75 * lengths[index] / average))
            )
    scores = 0.7 * cosines + 0.3 * keyword / max(keyword.max(), sum(idfs))
    return sorted((float(score) for score in scores), reverse=True)


async def test_a_repeated_statement_is_one_memory_of_higher_significance(built: Core) -> None:
    """It refers to both turns, and the change states its reason."""
    session = await open_session(built)
    first = await say(built, session, "I love rain", NOW - timedelta(days=2), 1)
    repeated = await say(built, session, "rain is my favourite", NOW, 2)
    assert first == repeated
    pool = owner_of(built)
    memory = await pool.fetchrow("SELECT id, significance, created_at, content FROM memories")
    assert memory["content"] == "I love rain"
    assert memory["significance"] == pytest.approx(0.66)
    assert memory["created_at"] == NOW
    assert await pool.fetchval("SELECT count(*) FROM memory_sources") == 1
    change, reason = await pool.fetchrow("SELECT change, reason FROM memory_changes")
    assert (change, reason[:23]) == ("merged", "says the same, cosine 0")
    turn = await pool.fetchval("SELECT turn_id FROM memory_sources")
    await built.ingester.ingest(session.relationship_id, turn)
    assert await pool.fetchval("SELECT count(*) FROM memory_changes") == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_contradicted_memory_is_superseded_and_not_lost(
    built: Core, order: tuple[int, int]
) -> None:
    """In whichever order the two turns are ingested."""
    session = await open_session(built)
    statements = [("I live in Lisbon", 30), ("I moved to Porto", 1)]
    turns = [
        await built.stores.turns.commit_message(session, text, text, NOW - timedelta(days=days))
        for text, days in statements
    ]
    for index in order:
        await built.ingester.ingest(session.relationship_id, turns[index].id)
    assert (await recall(built, session, "Where do I live?"))[0] == "I moved to Porto"
    assert (await recall(built, session, "Where in Lisbon did I live before?"))[0] == (
        "I live in Lisbon"
    )
    change, reason = await owner_of(built).fetchrow("SELECT change, reason FROM memory_changes")
    assert (change, reason) == ("superseded", "another home")


async def test_a_companion_may_disable_consolidation(built: Core) -> None:
    session = await open_session(built, consolidate=False)
    first = await say(built, session, "I love rain", NOW, 1)
    assert await say(built, session, "rain is my favourite", NOW, 2) != first


async def test_memories_of_a_given_day_are_found_among_many_others(built: Core) -> None:
    """The day in the question adds candidates, however near other memories are."""
    session = await open_session(built)
    await say(built, session, "We had soup", NOW - timedelta(days=40), 1)
    for number in range(2, 60):
        await say(built, session, f"I promise we did thing {number}", NOW, number)
    policy = dataclasses.replace(OPEN, time_weight=1.0)
    recalled = await recall(built, session, "What did we do on 10 April?", policy)
    assert recalled[0] == "We had soup"


async def test_a_memory_stores_the_reasons_for_its_significance(built: Core) -> None:
    """The largest score first."""
    session = await open_session(built)
    memory = await say(built, session, "My name is Ines, remember it")
    reasons = await owner_of(built).fetchval("SELECT reasons FROM memories WHERE id = $1", memory)
    scores = {reason["name"]: reason["score"] for reason in json.loads(reasons)}
    assert scores["identity"] == 0.85
    assert scores["phrase"] == 0.3
    assert list(scores.values()) == sorted(scores.values(), reverse=True)


async def test_phrases_of_a_companion_raise_significance(built: Core) -> None:
    """Messages that others would discard are stored."""
    rules = SignificanceRules(phrases={"moon": 0.7}, learned=False)
    session = await open_session(built, significance=rules)
    assert await say(built, session, "the moon", number=1) is not None
    assert await say(built, session, "the sun", number=2) is None


async def test_use_refreshes_a_memory(built: Core) -> None:
    """Recency is measured from the last use."""
    session = await open_session(built)
    old, older = [
        await say(
            built, session, f"I promise a boat of type {number}", NOW - timedelta(days=days), number
        )
        for number, days in ((1, 60), (2, 80))
    ]
    assert old is not None and older is not None
    await built.stores.memories.mark_used(session.relationship_id, [older], NOW)
    policy = dataclasses.replace(OPEN, decay="half_life", recency_weight=1.0, max_age_days=None)
    assert (await recall(built, session, "the boat", policy))[0].endswith("2")


async def test_a_turn_erased_before_it_is_ingested_is_not_remembered(built: Core) -> None:
    """Not even by a worker that has already read it and waits for the lock."""
    session = await open_session(built)
    turn = await built.stores.turns.commit_message(
        session, "m1", "I promise to keep the secret", NOW
    )
    async with ErasureTransaction.begin(built.database, session.relationship_id) as erasure:
        ingest = asyncio.create_task(built.ingester.ingest(session.relationship_id, turn.id))
        await eventually_async(owner_of(built).is_waited_for)
        assert await erasure.remove([], [turn.id], NOW) == 1
    assert await ingest is None
    stored = await owner_of(built).fetchrow("SELECT content, embedding FROM turns")
    assert tuple(stored) == ("", None)
    assert await owner_of(built).fetchval("SELECT count(*) FROM memories") == 0
