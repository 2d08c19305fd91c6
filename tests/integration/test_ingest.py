"""Ingest of several turns in one transaction: as one by one, and in few statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from foremind.app.core import Core
from foremind.domain.turn import OpenedSession
from foremind.storage.named_queries import load_queries
from tests.conftest import owner_of
from tests.integration.test_store import NOW, open_session

# Speaker and text. Repeated, contradicted, answered, quoted and said for no purpose.
_LIFE = (
    ("user", "I live in Lisbon with my sister Clara"),
    ("companion", "What's your dog's name?"),
    ("user", "Biscuit."),
    ("companion", "So you live in Lisbon with my sister Clara, and Biscuit."),
    ("user", "I love rain"),
    ("companion", "hmm"),
    ("user", "rain is my favourite"),
    ("companion", "I will always remember the storm of May, I promise"),
    ("user", "I moved to Porto"),
    ("companion", "Where do you work?"),
    ("user", "At the harbour"),
    ("user", "I left Porto"),
    ("companion", "How many boats have you got?"),
    ("user", "Three"),
    ("user", "haha"),
)


async def store(built: Core, session: OpenedSession, life: Any = _LIFE) -> list[int]:
    """Store turns that nobody has ingested; return their ids."""
    turns = []
    for speaker, text in life:
        if speaker == "user":
            stored = await built.stores.turns.commit_message(session, text, text, NOW)
            turns.append(stored.id)
        else:
            reply = await built.stores.turns.commit_reply(session, None, "completed", text, NOW)
            assert reply is not None
            turns.append(reply)
    return turns


async def remembered(built: Core, session: OpenedSession, first: int) -> list[Any]:
    """Everything that is known of a relationship's memories, by the place of their turns."""
    rows = await owner_of(built).fetch(
        """
        SELECT source_turn_id - $2 AS place, significance, content, reasons, superseded_by IS NULL,
            (SELECT array_agg(turn_id - $2 ORDER BY turn_id) FROM memory_sources AS source
             WHERE source.relationship_id = $1 AND source.memory_id = memories.id),
            (SELECT array_agg((slot, value)::text ORDER BY slot, value) FROM memory_facts AS fact
             WHERE fact.relationship_id = $1 AND fact.memory_id = memories.id),
            (SELECT array_agg((change, reason, other_turn_id - $2)::text ORDER BY id)
             FROM memory_changes AS change
             WHERE change.relationship_id = $1 AND change.memory_id = memories.id),
            (SELECT array_agg((term, frequency)::text ORDER BY term) FROM memory_terms AS word
             WHERE word.relationship_id = $1 AND word.memory_id = memories.id)
        FROM memories WHERE relationship_id = $1 ORDER BY id
        """,
        session.relationship_id,
        first,
    )
    return [tuple(row) for row in rows]


async def vectors(built: Core, session: OpenedSession) -> Any:
    """The vectors of a relationship's memories."""
    rows = await owner_of(built).fetch(
        "SELECT embedding FROM memories WHERE relationship_id = $1 ORDER BY id",
        session.relationship_id,
    )
    return np.stack([row["embedding"].to_numpy() for row in rows])


async def counts(built: Core, session: OpenedSession) -> Any:
    """The version and the counts of a relationship, and how many turns wait."""
    return await owner_of(built).fetchrow(
        "SELECT memory_version, memory_count, term_count, (SELECT count(*) FROM background_steps "
        "WHERE relationship_id = id) AS waiting FROM relationships WHERE id = $1",
        session.relationship_id,
    )


@pytest.mark.parametrize("remember_replies", ["informative", "all", "none"])
async def test_turns_ingested_together_become_what_they_become_one_by_one(
    built: Core, remember_replies: str
) -> None:
    """What one does to memories, the next one sees."""
    settings = {"remember_replies": remember_replies}
    alone, together = [await open_session(built, user, **settings) for user in ("ana", "ANA")]
    alone_turns, turns = [await store(built, session) for session in (alone, together)]
    for turn in alone_turns:
        await built.ingester.ingest(alone.relationship_id, turn)
    announced = await built.ingester.ingest_turns(together.relationship_id, turns)
    assert announced.keys() == set(turns)
    expected = await remembered(built, alone, alone_turns[0])
    assert await remembered(built, together, turns[0]) == expected
    assert len(expected) > 5
    cosines = np.sum(await vectors(built, alone) * await vectors(built, together), axis=1)
    assert cosines == pytest.approx(1, abs=2e-3)
    one_by_one, at_once = await counts(built, alone), await counts(built, together)
    assert at_once["memory_version"] == 1 < one_by_one["memory_version"]
    assert at_once["memory_count"] == one_by_one["memory_count"] == len(expected)
    assert at_once["term_count"] == pytest.approx(one_by_one["term_count"])
    assert at_once["waiting"] == one_by_one["waiting"] == 0


async def test_what_adds_nothing_raises_no_version(built: Core) -> None:
    """Nor does ingesting a turn again."""
    session = await open_session(built)
    turns = await store(built, session, [("user", "haha"), ("companion", "hmm")])
    announced = await built.ingester.ingest_turns(session.relationship_id, turns)
    assert [outcome.memory_version for outcome in announced.values()] == [None, None]
    turns = await store(built, session, [("user", "I live in Porto")])
    for version in (1, None):
        outcome = await built.ingester.ingest(session.relationship_id, turns[-1])
        assert outcome is not None and outcome.memory_version == version


async def test_a_text_that_is_not_the_stored_one_is_read_again(built: Core) -> None:
    """It was corrected after it was typed."""
    session = await open_session(built)
    (turn,) = await store(built, session, [("user", "I live in Porto")])
    other = "I promise to bring a lantern"
    built.ingester.cache_turn(turn, other, await built.embedder.embed_passage(other))
    await built.ingester.ingest(session.relationship_id, turn)
    vector = await owner_of(built).fetchval("SELECT embedding FROM turns")
    exact = await built.embedder.embed_passage("I live in Porto")
    assert float(exact @ vector.to_numpy()) == pytest.approx(1, abs=2e-3)


@contextmanager
def sent_statements(built: Core) -> Iterator[list[list[str]]]:
    """The statements that each connection sends to the database meanwhile."""
    connections = [holder._con for holder in built.database.pool._holders if holder._con]
    sent: list[list[str]] = [[] for _ in connections]
    loggers = [
        lambda logged, statements=statements: statements.append(logged.query) for statements in sent
    ]
    for raw, logger in zip(connections, loggers, strict=True):
        raw.add_query_logger(logger)
    yield sent
    for raw, logger in zip(connections, loggers, strict=True):
        raw.remove_query_logger(logger)


@contextmanager
def ingest_transactions(built: Core) -> Iterator[list[list[str]]]:
    """The statements of the transactions that read turns to ingest meanwhile."""
    found: list[list[str]] = []
    with sent_statements(built) as sent:
        yield found
    for statements in sent:  # others, like that of how much a user has stored, may be among them
        begins = [number for number, text in enumerate(statements) if text.startswith("BEGIN")]
        for begin, end in pairwise([*begins, len(statements)]):
            if load_queries()["turns_to_ingest"] in statements[begin:end]:
                found.append(statements[begin:end])


@pytest.mark.parametrize(
    ("said", "most"),
    [
        ([("user", "I promise to be early")], 7),
        ([("user", "I promise to be early"), ("companion", "I promise to bring a lantern")], 7),
        ([("user", "My boat is called Zephyrine")], 8),  # a fact, which another may contradict
        ([("user", "haha")], 6),  # the turn before is embedded with it
    ],
)
async def test_what_was_just_said_is_ingested_in_few_statements(
    built: Core, said: Any, most: int
) -> None:
    """In one transaction, whether a reply comes with it or not."""
    session = await open_session(built)
    before = await store(built, session, [("user", "I live in Porto")])
    await built.ingester.ingest_turns(session.relationship_id, before)
    turns = await store(built, session, said)
    for turn, (_, text) in zip(turns, said, strict=True):
        built.ingester.cache_turn(turn, text)
    with ingest_transactions(built) as sent:
        await built.ingester.ingest_turns(session.relationship_id, turns)
    assert [len(statements) for statements in sent] == [most], sent


async def test_a_question_is_kept_with_its_answer(built: Core) -> None:
    """In the same transaction, though nobody had answered when it was judged."""
    session = await open_session(built, remember_replies="informative")
    turns = await store(built, session, [("companion", "What's your dog's name?")])
    alone = await built.ingester.ingest(session.relationship_id, turns[0])
    assert alone is not None and alone.memory_id is None
    turns += await store(built, session, [("user", "Biscuit.")])
    built.ingester.cache_turn(turns[1], "Biscuit.")
    with ingest_transactions(built) as sent:
        announced = await built.ingester.ingest_turns(session.relationship_id, turns[1:])
    assert len(sent) == 1, sent
    assert [announced[turn].memory_id is not None for turn in turns] == [True, True]
    assert [row[2] for row in await remembered(built, session, turns[0])] == [
        "Biscuit.",
        "What's your dog's name?",
    ]
