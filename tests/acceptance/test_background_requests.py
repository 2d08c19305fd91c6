"""How often a model is asked in the background, and how long what was said waits for that."""

import asyncio
from collections import Counter

import pytest

from foremind.domain.background_step import GATHERED_FOR, MAX_GATHERED_MESSAGES
from tests.acceptance.world import World, world
from tests.conftest import FIRST_RELATIONSHIP, StartServer, owner_of

_PART_S = 5.0  # in which waiting messages are looked at
_MOST = 0.4  # requests per message, while somebody talks
_MOST_AT_THE_END = 3  # of a session: episodes, a topic, core memory; all of it was read before
#: What somebody tells over eight minutes: facts, plans, questions, and much that is nothing.
_SAID = (
    "Hi, I have just come home from work",
    "My sister Nadia visited me with her two kids yesterday",
    "I work at the bakery by the harbour, and it was a long day",
    "Do you think one can get used to getting up at three?",
    "My goal is to open a bakery of my own in Porto next year",
    "The oven broke down twice, and the boss shouted at everybody",
    "I am allergic to walnuts, which is not ideal for a baker",
    "What would you put into a cake for somebody who hates sugar?",
    "Nadia wants me to move in with her, but I love my flat",
    "Tell me something nice",
    "I decided to ask the bank for a loan of forty thousand euros",
    "My brother Tom thinks that this is too much",
    "I go rowing every Thursday with Bela, it clears my head",
    "Yes, that is true",
    "My dog Scout is twelve years old and sleeps all day",
    "Let us talk about the loan later",
    "I dislike the new manager of the bank, he never listens",
    "On Friday I will show Bela the place in Porto",
    "I am a bit afraid of it, to be honest",
    "Good night, I have to get up at three",
)


def requests_by_work(w: World) -> Counter[str]:
    """Count the requests so far by what they were for."""
    counts: Counter[str] = Counter()
    for family in w.server.app.core.runtime.metrics.background_tasks.collect():
        for sample in family.samples:
            if sample.name.endswith("_total") and sample.labels["outcome"] != "rules":
                counts[sample.labels["work"]] += int(sample.value)
    return counts


async def waiting(w: World) -> tuple[int, float]:
    """Return how many messages a model has not read for notes and profile, and the longest wait."""
    number, seconds = await owner_of(w.server.app.core).fetchrow(
        "SELECT count(*), extract(epoch FROM $1 - min(turns.created_at)) FROM turns "
        "JOIN relationships ON relationships.id = turns.relationship_id "
        "WHERE turns.id > relationships.noted_turn_id AND turns.speaker = 'user'",
        w.clock.now(),
    )
    return int(number), float(seconds or 0.0)


@pytest.mark.parametrize("pause_s", [25.0, 5.0])  # shorter than any lull
async def test_a_conversation_is_read_in_few_requests(start: StartServer, pause_s: float) -> None:
    """All of it once; and nothing that was said waits for longer than is documented."""
    async with world(start, model=True) as w:
        assert w.model is not None
        script, waited = w.model.script, []
        client = await w.server.session()
        w.relationship = FIRST_RELATIONSHIP
        for text in _SAID:
            await client.send(text)
            await client.expect_all("response.done", "memory.stored")
            for _ in range(round(pause_s / _PART_S)):
                await w.clock.advance(_PART_S)
                await asyncio.sleep(0.05)
                waited.append(await waiting(w))
        await w.wait_until_idle()
        talking, asked = requests_by_work(w), len(script.background_requests)
        assert talking.total() == asked <= _MOST * len(_SAID), talking
        assert max(seconds for _, seconds in waited) <= GATHERED_FOR.total_seconds() + _PART_S
        assert max(number for number, _ in waited) <= MAX_GATHERED_MESSAGES
        assert await waiting(w) == (0, 0.0)
        await w.next_day()
        at_the_end = requests_by_work(w) - talking
        assert at_the_end.total() <= _MOST_AT_THE_END, at_the_end
        for form in ("operations", "entries", "left_at"):  # of notes, profile, and episodes
            read = " ".join(
                chat["messages"][1]["content"].rpartition("Said:")[2]
                for chat in script.background_requests
                if f'"{form}"' in chat["messages"][0]["content"]
            )
            assert [read.count(text) for text in _SAID] == [1] * len(_SAID), form
