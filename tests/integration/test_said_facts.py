"""What players say of themselves, retract and correct, in the stored profile and memories."""

from collections.abc import AsyncIterator

import pytest

from foremind.domain.settings.settings import Settings
from tests.conftest import owner_of
from tests.integration.step_bench import Bench, step_bench


@pytest.fixture
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    """A worker that is not started yet, whose model finds nothing."""
    async with step_bench(settings) as bench:
        bench.script.background = lambda _: '{"entries": []}'
        yield bench


#: What is said, one message after another, and the profile afterwards.
PROFILES: dict[tuple[str, ...], set[str]] = {
    ("call me sweetie", "dont call me sweetie"): {"manner: don't call me sweetie"},
    ("My name is Bob", "i didnt say my name is Bob"): set(),
    ("I live in Porto", "Forget that I live in Porto"): set(),
    ("I'm vegan", "I'm not vegan anymore"): set(),
    ("I'm allergic to nuts", "no longer allergic to nuts"): set(),
    ("I have a dog called Rex", "I don't have a dog"): set(),
    ("Im vegan",): {"diet: vegan"},
    ("Ive moved to Porto",): {"home: Porto"},
    ("my names ana",): {"name: ana"},
    ("I`m vegan", "I´m from Rome", "I’m 30"): {"diet: vegan", "origin: Rome", "age: 30"},
    ("I live in Lisbon", "I moved from Lisbon to Porto"): {"home: Porto"},
    ("I live in Lisbon", "Just moved to Porto!"): {"home: Porto"},
    ("I live in Lisbon", "left Lisbon"): set(),
    ("My dog is called Rex", "buried Rex"): set(),
    ("My husband is called Tom", "I'm married", "my husband Tom died in March"): set(),
    ("I work at Bosch", "I'm a welder", "I quit my job"): set(),
    ("I work at Bosch", "I started at Siemens last week"): {"employer: Siemens"},
    ("My favourite colour is blue, no wait, green",): {"favourite colour: green"},
    ("I'm 30, I mean 31",): {"age: 31"},
    ("My name isn't Bob, it's Rob",): {"name: Rob"},
    ("I have two cats and a dog", "my cat died"): {"pets: dog"},
    ("I have a brother called Tom and a brother called Ben", "my brother Tom died"): {
        "family: brother Ben"
    },
    ("I live in Rome", "I left Lisbon years ago"): {"home: Rome"},
    ("I like tea", "I don't like tea anymore"): {"dislikes: tea"},
    ("I left Bosch", "I work at Bosch"): {"employer: Bosch"},
    ("I have a cat", "I gave my cat away"): set(),
    ("I'm married", "my wife and i split up"): set(),
    ("I study law", "I dropped out of law school"): set(),
    ("My dog is called Rex", "forget about my dog"): set(),
    ("*I live in the dark forest of Mor*",): set(),
    ("Translate to German: I live in Porto",): set(),
    ("> I live in Berlin",): set(),
    ("Can you say 'my name is Ana' in Portuguese?",): set(),
}


async def test_the_profile_follows_what_is_said(bench: Bench) -> None:
    """What is retracted, ended or corrected leaves it; what is only mentioned never enters."""
    sessions = {texts: await bench.open_session(f"user-{n}") for n, texts in enumerate(PROFILES)}
    for texts, session in sessions.items():
        await bench.say(session, *texts)
    async with bench.worker:
        await bench.wait_until_idle()
    stored = {
        texts: {f"{record.title}: {record.content}" for record in records}
        for texts, session in sessions.items()
        for records in [await bench.records(session, "profile")]
    }
    assert stored == PROFILES


#: A message, and a later one after which the first is no longer so, or still is.
SUPERSEDED = [
    ("I live in Lisbon", "I've left Lisbon, it was time", True),
    ("I live in Lisbon", "Forget that I live in Lisbon", True),
    ("I live in Porto", "I've left Lisbon, it was time", False),
    ("I'm allergic to nuts", "I'm no longer allergic to nuts", True),
    ("My dog is called Rex", "We buried Rex yesterday", True),
    ("I have a dog called Rex", "I don't have a dog", True),
    ("I work at Bosch", "I quit my job last week", True),
    ("I work at Bosch", "I started at Siemens last week", True),
    ("My sister Lena is a vet", "My sister Lena moved to Rome", False),
    ("I live in Lisbon", "I moved from Lisbon to Porto", True),
    ("I'm allergic to nuts", "I speak French", False),
]


@pytest.mark.parametrize(("before", "after", "superseded"), SUPERSEDED)
async def test_a_memory_of_what_ended_is_superseded(
    bench: Bench, before: str, after: str, *, superseded: bool
) -> None:
    """So it ranks after what replaced it, and is marked as no longer so."""
    session = await bench.open_session()
    for text in (before, after):
        turn = await bench.built.stores.turns.commit_message(session, text, text, bench.clock.now())
        await bench.built.ingester.ingest(session.relationship_id, turn.id)
        await bench.clock.advance(60)
    found = await owner_of(bench.built).fetch(
        "SELECT superseded_by IS NOT NULL AS superseded FROM memories ORDER BY id"
    )
    assert [row["superseded"] for row in found] == [superseded, False]
