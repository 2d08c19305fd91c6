"""The store on real PostgreSQL: migrations, exactly once, one model, plans at size."""

import asyncio
import dataclasses
import json
import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import numpy as np
import pytest
from numpy.typing import NDArray
from pgqueuer.queries import Queries
from pgvector import HalfVector

from foremind.app import Core, core
from foremind.domain.companion import CompanionFile, CompanionSettings, SignificanceRules
from foremind.domain.errors import DatabaseUnsuitable, ModelMismatch, StorageUnavailable
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings import Settings, load_settings
from foremind.domain.turn import ExchangeTurn, OpenedSession, Speaker
from foremind.evaluation.seeding import fill, words_said
from foremind.memory.context_window import read_in_exchange
from foremind.retrieval.embedding.conversion import prepare_model
from foremind.retrieval.embedding.manifest_writer import Prefixes, describe_folder
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.retrieval.search import Query
from foremind.storage.database import Database
from foremind.storage.erasure_store import ErasureTransaction
from foremind.storage.migrations import load_migrations, migrate, status
from foremind.storage.named_queries import load_queries
from foremind.testing.random_model import write_random_model
from tests.conftest import PATIENCE, owner_of

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
DEFAULT = policy_for(CompanionSettings(), load_settings()).recall
# Everything that is near at all, by the 70/30 rule alone.
OPEN = dataclasses.replace(
    DEFAULT,
    significance_threshold=0.0,
    significance_weight=0.0,
    gate=False,
    min_score=0.0,
    min_share=0.0,
)


async def opened(parts: Core, user: str = "ana", **settings: object) -> OpenedSession:
    """A session of `user` with a companion of these settings."""
    companion = await parts.companions.put(
        CompanionFile("mara", "Mara", "A persona.", settings=CompanionSettings(**settings))  # type: ignore[arg-type]
    )
    return await parts.turns.open_session(user, user.title(), companion.id, NOW)


async def tell(
    parts: Core, session: OpenedSession, text: str, said_at: datetime = NOW, number: int = 0
) -> int | None:
    """Say something and have it judged; return its memory."""
    message_id = f"{number}-{text}"[:100]
    turn = await parts.turns.commit_message(session, message_id, text, said_at)
    announced = await parts.rememberer.remember(session.relationship_id, turn.id)
    return announced.memory_id if announced else None


async def recall(
    parts: Core, session: OpenedSession, text: str, policy: RecallPolicy | None = None
) -> list[str]:
    """What comes back for a text."""
    policy = policy or OPEN
    vector = await parts.embedder.embed_query(text, Priority.ENTER)
    found = await parts.search.search(Query(session.relationship_id, text, vector, policy, NOW))
    return [each.content for each in found]


async def test_migrations_run_once_and_show_their_state(postgres: str, database_url: str) -> None:
    """A second run changes nothing."""
    assert await migrate(database_url) == []
    applied, waiting = await status(database_url)
    assert (applied, waiting) == (load_migrations(), [])


async def test_two_servers_may_migrate_at_once(postgres: str) -> None:
    """One does, the other waits and finds it done."""
    admin = await asyncpg.connect(postgres.replace("/foremind?", "/postgres?"))
    try:
        await admin.execute("CREATE DATABASE migrated_twice")
        url = postgres.replace("/foremind?", "/migrated_twice?")
        ran = await asyncio.gather(migrate(url), migrate(url))
        assert sorted(map(len, ran)) == [0, len(load_migrations())]
        await admin.execute("DROP DATABASE migrated_twice WITH (FORCE)")
    finally:
        await admin.close()


async def test_a_database_that_is_away_is_a_clear_error() -> None:
    """Before and after the start."""
    with pytest.raises(DatabaseUnsuitable, match="FOREMIND_DATABASE_URL"):
        await migrate("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StorageUnavailable):
        async with Database.connect("postgresql://nobody@127.0.0.1:1/none", size=2, timeout_s=1):
            pass


async def test_the_job_queue_is_the_librarys_own(built: Core) -> None:
    """The frozen migration is what this version of pgqueuer would install."""
    async with owner_of(built).acquire() as raw:
        plan = await Queries.from_asyncpg_connection(raw).plan_upgrade()
    assert list(plan.statements) == []


async def test_a_message_and_its_job_are_stored_once(built: Core) -> None:
    """The same id again is the same turn, also at the same moment."""
    session = await opened(built)
    stored = await asyncio.gather(
        *(built.turns.commit_message(session, "m1", "Hello", NOW) for _ in range(5))
    )
    assert len({each.id for each in stored}) == 1
    assert sum(not each.duplicate for each in stored) == 1
    assert await built.database.value("waiting_jobs") == 1


async def test_an_id_is_unique_per_user(built: Core) -> None:
    """Two users may choose the same."""
    ana, bo = await opened(built, "ana"), await opened(built, "bo")
    first = await built.turns.commit_message(ana, "m1", "Hello", NOW)
    second = await built.turns.commit_message(bo, "m1", "Hello", NOW)
    assert not second.duplicate
    assert first.id != second.id


async def test_judging_a_turn_twice_keeps_one_memory(built: Core) -> None:
    """A job may run again after a crash."""
    session = await opened(built)
    turn = await built.turns.commit_message(session, "m1", "I promise to remember you", NOW)
    first, second = [
        await built.rememberer.remember(session.relationship_id, turn.id) for _ in range(2)
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


async def test_memories_end_the_same_whatever_order_their_turns_are_judged_in(
    built: Core,
) -> None:
    """Each is read with its neighbours, also those judged later, twice, or not kept."""
    session = await opened(built)
    said = [
        "I promise to visit Porto",
        "When?",
        "I hope we will go in spring",
        "hmm",
        "remember the tickets",
        "I trust that you love trains",
    ]
    randomness = random.Random(3)
    turns: list[int] = []
    for number, text in enumerate(said):
        if number % 2:
            turn = await built.turns.commit_reply(session, None, "completed", text, NOW)
        else:
            turn = (await built.turns.commit_message(session, f"m{number}", text, NOW)).id
        assert turn is not None
        turns.append(turn)
    order = [*turns, turns[2], turns[5]]
    randomness.shuffle(order)
    for turn in order:
        await built.rememberer.remember(session.relationship_id, turn)
    vectors = [await built.embedder.embed_passage(text) for text in said]
    names: dict[Speaker, NDArray[np.float32]] = {
        "user": await built.embedder.embed_passage("Ana"),
        "companion": await built.embedder.embed_passage("Mara"),
    }
    around = [
        ExchangeTurn(turn, "companion" if number % 2 else "user", text, vector, None)
        for number, (turn, text, vector) in enumerate(zip(turns, said, vectors, strict=True))
    ]
    rows = await owner_of(built).fetch(
        "SELECT id, source_turn_id, embedding, term_count FROM memories"
    )
    assert len(rows) == 4
    for row in rows:
        expected = read_in_exchange(around, turns.index(row["source_turn_id"]), names)
        assert float(expected.vector @ row["embedding"].to_numpy()) == pytest.approx(1.0, abs=2e-3)
        words = await owner_of(built).fetch(
            "SELECT term, frequency FROM memory_terms WHERE memory_id = $1", row["id"]
        )
        assert dict(map(tuple, words)) == pytest.approx(expected.terms)
        assert row["term_count"] == pytest.approx(expected.length)
    counted = await owner_of(built).fetchval("SELECT term_count FROM relationships")
    assert counted == pytest.approx(sum(row["term_count"] for row in rows))


async def test_a_short_answer_is_found_by_what_it_answers(built: Core) -> None:
    """ "Yes, last Tuesday" means nothing alone."""
    session = await opened(built, significance_threshold=0.0)
    for number, text in enumerate(
        ["Did you finish painting the lighthouse door?", "Yes, last Tuesday", "I had soup", "Nice"]
    ):
        await tell(built, session, text, number=number)
    found = await recall(built, session, "the lighthouse painting")
    assert found[0] == "Yes, last Tuesday"


async def test_what_does_not_matter_is_not_kept(built: Core) -> None:
    """The published examples."""
    session = await opened(built)
    assert await tell(built, session, "hmm") is None
    assert await tell(built, session, "I promise I'll help you with your garden tomorrow")
    content, significance = await owner_of(built).fetchrow(
        "SELECT content, significance FROM memories"
    )
    assert (content, round(significance, 2)) == (
        "I promise I'll help you with your garden tomorrow",
        0.65,
    )


async def test_search_finds_by_meaning_and_by_word(built: Core) -> None:
    """Either half alone would miss one of these."""
    session = await opened(built, significance_threshold=0.0)
    for number, text in enumerate(
        ["The weather turned bad during our walk", "My boat is called Zephyrine", "I like tea"]
    ):
        await tell(built, session, text, number=number)
    assert (await recall(built, session, "remember when it rained?"))[0].startswith("The weather")
    assert (await recall(built, session, "Zephyrine?"))[0].startswith("My boat")


async def test_relationships_never_mix(built: Core) -> None:
    """The same companion knows each user's own story."""
    ana, bo = await opened(built, "ana"), await opened(built, "bo")
    await tell(built, ana, "I promise to remember the red door")
    assert await recall(built, bo, "the red door") == []
    assert len(await recall(built, ana, "the red door")) == 1


async def test_age_and_significance_limit_what_is_recalled(built: Core) -> None:
    """Both are filters before the limit, and both can be lifted."""
    session = await opened(built, significance_threshold=0.0)
    await tell(built, session, "An old boat", NOW - timedelta(days=91), 1)
    await tell(built, session, "A plain boat", NOW - timedelta(days=1), 2)
    await tell(built, session, "An important boat", NOW - timedelta(days=89), 3)
    usual = dataclasses.replace(OPEN, significance_threshold=0.3)
    assert await recall(built, session, "boat", usual) == ["An important boat"]
    lifted = dataclasses.replace(OPEN, max_age_days=None)
    assert len(await recall(built, session, "boat", lifted)) == 3


async def test_vectors_of_two_models_are_never_mixed(
    built: Core, settings: Settings, tmp_path: Path
) -> None:
    """A store belongs to the model that made its first vector, end to end at 768."""
    folder = tmp_path / "hub"
    write_random_model(folder, dimension=768)
    models = tmp_path / "models"
    manifest = describe_folder("example/wide", folder, Prefixes())
    prepare_model(manifest, models, print)
    wide = settings.model_copy(update={"embedding_model": "example/wide", "models_path": models})
    with pytest.raises(ModelMismatch, match=r"all-MiniLM-L6-v2 \(384\)"):
        async with core(wide):
            pass


async def test_768_numbers_are_stored_and_searched(settings: Settings, tmp_path: Path) -> None:
    """Through the same converter, schema and search."""
    folder = tmp_path / "hub"
    write_random_model(folder, dimension=768)
    models = tmp_path / "models"
    prepare_model(describe_folder("example/wide", folder, Prefixes()), models, print)
    wide = settings.model_copy(update={"embedding_model": "example/wide", "models_path": models})
    async with core(wide) as parts:
        session = await opened(parts, significance_threshold=0.0)
        await tell(parts, session, "my garden is lovely", number=1)
        await tell(parts, session, "the harbour boat", number=2)
        assert (await recall(parts, session, "the harbour boat"))[0] == "the harbour boat"
        width = await owner_of(parts).fetchval(
            "SELECT vector_dims(embedding) FROM memories LIMIT 1"
        )
    assert width == 768


async def test_a_search_at_size_reads_only_its_relationship(built: Core) -> None:
    """The plan at 3,000 of 30,000 memories: both indexes alone, no table scan."""
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
    assert "Index Only Scan using memories_by_relationship" in plan
    assert "Index Only Scan using memory_terms_pkey" in plan
    assert "Seq Scan on memories" not in plan
    assert "Seq Scan on memory_terms" not in plan


async def test_candidates_lose_nothing_that_ranks(built: Core) -> None:
    """The top 10 are those of scoring every memory of the relationship."""
    session = await fill(built, NOW, own=400, others=1_000)
    rng = np.random.default_rng(1)
    for _ in range(10):
        vector = rng.standard_normal(384).astype(np.float32)
        vector /= np.linalg.norm(vector)
        text = " ".join(words_said(rng, 5))
        query = Query(session.relationship_id, text, vector, OPEN, NOW)
        found = await built.search.search(query)
        everything = await _score_all(built, query)
        assert [each.relevance for each in found] == pytest.approx(everything[:10], abs=2e-3)


async def _score_all(parts: Core, query: Query) -> list[float]:
    """Score every memory of a relationship with BM25 written out."""
    rows = await owner_of(parts).fetch(
        "SELECT embedding, jsonb_object_agg(term, frequency)::text AS words "
        "FROM memories JOIN memory_terms AS word ON word.memory_id = memories.id "
        "WHERE memories.relationship_id = $1 GROUP BY memories.id",
        query.relationship_id,
    )
    documents = [json.loads(row["words"]) for row in rows]
    lengths = [12 * 1.5] * len(rows)
    matrix = np.stack([row["embedding"].to_numpy() for row in rows]).astype(np.float32)
    cosines = np.clip(matrix @ query.vector, 0, 1)
    average = sum(lengths) / len(lengths)
    keyword = np.zeros(len(rows))
    rarities = []
    for word in query.text.split():
        spread = sum(word in document for document in documents)
        idf = math.log(1 + (len(rows) - spread + 0.5) / (spread + 0.5))
        rarities.append(idf if spread else 3.0)
        for index, document in enumerate(documents):
            count = document.get(word, 0)
            keyword[index] += (
                idf * count * 2.5 / (count + 1.5 * (0.25 + 0.75 * lengths[index] / average))
            )
    scores = 0.7 * cosines + 0.3 * keyword / max(keyword.max(), sum(rarities))
    return sorted((float(score) for score in scores), reverse=True)


async def test_what_is_said_again_is_one_memory_that_matters_more(built: Core) -> None:
    """It keeps both turns, and the trace says why."""
    session = await opened(built)
    first = await tell(built, session, "I love rain", NOW - timedelta(days=2), 1)
    again = await tell(built, session, "rain is my favourite", NOW, 2)
    assert first == again
    pool = owner_of(built)
    memory = await pool.fetchrow("SELECT id, significance, created_at, content FROM memories")
    assert memory["content"] == "I love rain"
    assert memory["significance"] == pytest.approx(0.66)
    assert memory["created_at"] == NOW
    assert await pool.fetchval("SELECT count(*) FROM memory_sources") == 1
    change, reason = await pool.fetchrow("SELECT change, reason FROM memory_changes")
    assert (change, reason[:23]) == ("merged", "says the same, cosine 0")
    turn = await pool.fetchval("SELECT turn_id FROM memory_sources")
    await built.rememberer.remember(session.relationship_id, turn)
    assert await pool.fetchval("SELECT count(*) FROM memory_changes") == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_what_is_contradicted_gives_way_and_is_not_lost(
    built: Core, order: tuple[int, int]
) -> None:
    """In whichever order the two are judged."""
    session = await opened(built)
    said = [("I live in Lisbon", 30), ("I moved to Porto", 1)]
    turns = [
        await built.turns.commit_message(session, text, text, NOW - timedelta(days=days))
        for text, days in said
    ]
    for index in order:
        await built.rememberer.remember(session.relationship_id, turns[index].id)
    assert (await recall(built, session, "Where do I live?"))[0] == "I moved to Porto"
    assert (await recall(built, session, "Where in Lisbon did I live before?"))[0] == (
        "I live in Lisbon"
    )
    change, reason = await owner_of(built).fetchrow("SELECT change, reason FROM memory_changes")
    assert (change, reason) == ("superseded", "another home")


async def test_a_companion_may_keep_everything_apart(built: Core) -> None:
    """Consolidation is a setting."""
    session = await opened(built, consolidate=False)
    first = await tell(built, session, "I love rain", NOW, 1)
    assert await tell(built, session, "rain is my favourite", NOW, 2) != first


async def test_memories_of_a_time_are_found_among_many_others(built: Core) -> None:
    """The day asked for brings its own candidates, whatever else is nearer."""
    session = await opened(built)
    await tell(built, session, "We had soup", NOW - timedelta(days=40), 1)
    for number in range(2, 60):
        await tell(built, session, f"I promise we did thing {number}", NOW, number)
    policy = dataclasses.replace(OPEN, time_weight=1.0)
    found = await recall(built, session, "What did we do on 10 April?", policy)
    assert found[0] == "We had soup"


async def test_every_memory_can_say_why(built: Core) -> None:
    """The reasons are stored with it, largest first."""
    session = await opened(built)
    memory = await tell(built, session, "My name is Ines, remember it")
    reasons = await owner_of(built).fetchval("SELECT reasons FROM memories WHERE id = $1", memory)
    found = {load["name"]: load["score"] for load in json.loads(reasons)}
    assert found["identity"] == 0.85
    assert found["phrase"] == 0.3
    assert list(found.values()) == sorted(found.values(), reverse=True)


async def test_a_companions_own_phrases_matter_to_it(built: Core) -> None:
    """What is nothing to others is kept."""
    rules = SignificanceRules(phrases={"moon": 0.7}, learned=False)
    session = await opened(built, significance=rules)
    assert await tell(built, session, "the moon", number=1) is not None
    assert await tell(built, session, "the sun", number=2) is None


async def test_what_was_used_is_refreshed(built: Core) -> None:
    """Recency counts from the last use."""
    session = await opened(built)
    old, older = [
        await tell(
            built, session, f"I promise a boat of type {number}", NOW - timedelta(days=days), number
        )
        for number, days in ((1, 60), (2, 80))
    ]
    assert old is not None and older is not None
    await built.memories.refresh(session.relationship_id, [older], NOW)
    policy = dataclasses.replace(OPEN, decay="half_life", recency_weight=1.0, max_age_days=None)
    assert (await recall(built, session, "the boat", policy))[0].endswith("2")


async def test_what_is_forgotten_before_its_job_runs_is_not_remembered(built: Core) -> None:
    """Not even by a job that has read it already and waits for the lock."""
    session = await opened(built)
    turn = await built.turns.commit_message(session, "m1", "I promise to keep the secret", NOW)
    async with ErasureTransaction.begin(built.database, session.relationship_id) as forgetting:
        job = asyncio.create_task(built.rememberer.remember(session.relationship_id, turn.id))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        async with asyncio.timeout(PATIENCE):
            while not await owner_of(built).fetchval(waiting):
                await asyncio.sleep(0.01)
        assert await forgetting.remove([], [turn.id], NOW) == 1
    assert await job is None
    stored = await owner_of(built).fetchrow("SELECT content, embedding FROM turns")
    assert tuple(stored) == ("", None)
    assert await owner_of(built).fetchval("SELECT count(*) FROM memories") == 0
