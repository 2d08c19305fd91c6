"""What is made of a turn follows it: every layer, whatever is done to the turn."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from foremind.domain.record import RECORD_LAYERS, Details, MadeBy, NewRecord, RecordLayer
from foremind.memory.erasure.records import MADE_OF_TURNS
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.test_erasure_twins import verbatim_background
from tests.acceptance.traces import objects_containing, stored_text
from tests.acceptance.world import World, world
from tests.conftest import StartServer, eventually, owner_of

OTHER = "My favourite tea is mint"
SAID = "Save this: my favourite box is the one with the xylophone under the pear tree"
PINNED = "my favourite box is the one with the xylophone under the pear tree"
INSTEAD = "Save this: my favourite box is the one with the bassoon in the cellar"
PINNED_INSTEAD = "my favourite box is the one with the bassoon in the cellar"
REPLIES = ("I promise to bring you the telescope.", "I promise to bring you the accordion.")


@dataclass
class Past:
    """Two exchanges in an open session, and a record of every layer made of the second."""

    w: World
    client: Client
    turns: dict[str, int]
    seeded: dict[RecordLayer, int] = field(default_factory=dict)

    async def memory(self, text: str) -> str:
        """Return the id of a memory."""
        memory: str = (await self.w.memories())[text]["id"]
        return memory

    async def seed(self, content: str, turn: str) -> None:
        """Store a record of every layer that is made of a turn and of the first message."""
        w = self.w
        built = w.server.app.core
        async with built.stores.records.begin_changes(w.relationship, w.clock.now()) as changes:
            for layer in RECORD_LAYERS:
                if MADE_OF_TURNS[layer].of == "nothing":
                    continue  # pinned by the message itself
                made_by: MadeBy = "model"
                self.seeded[layer] = await changes.add(
                    NewRecord(
                        layer=layer,
                        title="box",
                        content=content,
                        made_by=made_by,
                        details=Details(status="open") if layer == "questions" else Details(),
                        turns=(self.turns[OTHER], self.turns[turn]),
                    )
                )

    async def layers(self) -> dict[RecordLayer, list[Any]]:
        """Return the records of every layer."""
        return {layer: await self.w.records(layer) for layer in RECORD_LAYERS}

    async def assert_nowhere(self, word: str) -> None:
        """Assert that a word is in no table but those of replies to choose from, and no object."""
        w = self.w
        await w.wait_until_idle()
        stored = await stored_text(w.server)
        alternatives = await owner_of(w.server.app.core).fetch("SELECT * FROM alternative_replies")
        assert stored.count(word) == str([dict(row) for row in alternatives]).lower().count(word)
        if not alternatives:
            await eventually(lambda: not objects_containing(word))
        assert word not in str(await w.context("Where is my favourite box?")).lower()


@asynccontextmanager
async def past(start: StartServer) -> AsyncIterator[Past]:
    """Serve a model that makes another reply each time, and say two messages."""
    clock = ManualClock()
    script = Script(background=verbatim_background)

    def reply(_: object) -> list[str]:
        number = len(script.player_requests) - 1
        return (
            ["I see."] if number == 0 else [f"{word} " for word in REPLIES[number % 2 - 1].split()]
        )

    script.reply = reply
    async with scripted_model(script) as model:
        w = World(await start(clock=clock, llm_url=model.url), clock, model)
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        w.relationship = int(opened["relationship_id"])
        for number, text in enumerate((OTHER, SAID)):
            await client.send(text, f"m{number}")
            await client.expect_all("response.done", "memory.stored")
            await clock.advance(20)
        await w.wait_until_idle()
        rows = await owner_of(w.server.app.core).fetch("SELECT id, content FROM turns")
        yield Past(w, client, {row["content"].strip(): row["id"] for row in rows})


async def _edit(p: Past) -> None:
    await p.client.edit("m1", INSTEAD, "m2")
    await p.client.expect("response.done")


async def _correct(p: Past) -> None:
    await p.w.request("PATCH", f"/memories/{await p.memory(SAID)}", {"content": INSTEAD})


async def _erase_memory(p: Past) -> None:
    await p.w.request("DELETE", f"/memories/{await p.memory(SAID)}")


async def _erase_turn(p: Past) -> None:
    await p.w.request("DELETE", f"/memories?turn={p.turns[SAID]}")


async def _erase_session(p: Past) -> None:
    sessions = (await p.w.request("GET", "/sessions"))["sessions"]
    await p.w.request("DELETE", f"/memories?session={sessions[0]['id']}")


async def _erase_topic(p: Past) -> None:
    await p.w.request("DELETE", "/memories?about=xylophone")


async def _erase_everything(p: Past) -> None:
    await p.w.request("DELETE", "/memories")


async def _regenerate(p: Past) -> None:
    await p.client.regenerate("m1")
    await p.client.expect("response.done")


async def _choose(p: Past) -> None:
    await _regenerate(p)
    await p.w.wait_until_idle()
    row = await owner_of(p.w.server.app.core).fetchrow("SELECT id FROM turns ORDER BY id DESC")
    p.turns[REPLIES[1]] = row["id"]
    await p.seed("Wren promised the accordion", REPLIES[1])
    await p.client.choose("m1", 0)
    await p.client.expect("response.chosen")


Act = Callable[[Past], Awaitable[None]]
#: By act on the second message: what is pinned afterwards, and what is made of the first still is.
ACTS: dict[str, tuple[Act, list[str], bool]] = {
    "edit": (_edit, [PINNED_INSTEAD], True),
    "correct": (_correct, [PINNED_INSTEAD], True),
    "erase a memory": (_erase_memory, [], True),
    "erase a turn": (_erase_turn, [], True),
    "erase a topic": (_erase_topic, [], True),
    "erase a session": (_erase_session, [], False),
    "erase everything": (_erase_everything, [], False),
}
REPLY_ACTS: dict[str, tuple[Act, str]] = {
    "another reply": (_regenerate, "telescope"),
    "choose a reply": (_choose, "accordion"),
}


def test_the_table_has_every_layer() -> None:
    """A new layer has to be entered."""
    assert set(MADE_OF_TURNS) == set(RECORD_LAYERS)


@pytest.mark.parametrize("act", ACTS)
async def test_every_layer_follows_a_message(start: StartServer, act: str) -> None:
    """What was made of it is in no layer; what was made of others, too, is made of these again."""
    do, pinned, others_stay = ACTS[act]
    async with past(start) as p:
        assert [pin["content"] for pin in await p.w.records("vault")] == [PINNED]
        await p.seed("Ana keeps the xylophone under the pear tree", SAID)
        before = await p.layers()
        await do(p)
        await p.assert_nowhere("xylophone")
        after = await p.layers()
        for layer, record_id in p.seeded.items():
            assert str(record_id) in {record["id"] for record in before[layer]}, layer
            assert str(record_id) not in {record["id"] for record in after[layer]} or (
                "xylophone" not in str(after[layer])
            ), layer
        assert [pin["content"] for pin in after["vault"]] == pinned
        for layer, remaking in MADE_OF_TURNS.items():
            if others_stay and remaking == ("its turns", layer):
                assert "mint" in str(after[layer]), layer
        assert not await owner_of(p.w.server.app.core).fetchval(
            "SELECT count(*) FROM relationships WHERE remade <> '[]'"
        )
        context = str(await p.w.context("Where is my favourite box?"))
        assert ("bassoon" in context) == bool(pinned)


@pytest.mark.parametrize("act", REPLY_ACTS)
async def test_every_layer_follows_a_reply(start: StartServer, act: str) -> None:
    """What was made of the message alone, such as what it asked to be pinned, stays."""
    do, word = REPLY_ACTS[act]
    async with past(start) as p:
        if act == "another reply":
            await p.seed("Wren promised the telescope", REPLIES[0])
        await do(p)
        await p.assert_nowhere(word)
        after = await p.layers()
        assert all(word not in str(records) for records in after.values())
        assert [pin["content"] for pin in after["vault"]] == [PINNED]
        assert "xylophone" in str(await p.w.context("Where is my favourite box?"))


async def test_expiry_takes_nothing_with_it(start: StartServer) -> None:
    """Every layer keeps what was made of an expired turn."""
    async with past(start) as p:
        await p.seed("Ana keeps the xylophone under the pear tree", SAID)
        days = {"settings": {"retention_days": {"conversation": 3, "transcript": 3}}}
        await p.w.request("PATCH", "/config", days)
        owner = owner_of(p.w.server.app.core)
        await owner.execute("UPDATE relationships SET narrated_turn_id = 1000000")
        for _ in range(5):
            await p.w.next_day()
        assert await owner.fetchval("SELECT count(*) FROM memories") == 0
        assert await owner.fetchval("SELECT count(*) FROM turns WHERE content <> ''") == 0
        after = await p.layers()
        assert all("xylophone" in str(after[layer]) for layer in RECORD_LAYERS), after


@pytest.mark.parametrize(
    ("said", "instead", "pinned"),
    [
        (SAID, "Never mind", []),
        (SAID, INSTEAD, [PINNED_INSTEAD]),
        ("Please keep this: 4711", "please keep this: 4712", ["4712"]),
        ("The safe is empty", "save this: the safe is full", ["the safe is full"]),
        ("save this: the safe is full", "the safe is full", []),
    ],
)
async def test_a_pin_goes_with_the_message_that_asked_for_it(
    start: StartServer, said: str, instead: str, pinned: list[str]
) -> None:
    """And what takes its place is pinned if it asks for that."""
    async with world(start, model=False) as w:
        client = await w.talk("Hello")
        await client.send(said, "m1")
        await client.expect_all("response.done", "memory.stored")
        await w.wait_until_idle()
        await client.edit("m1", instead, "m2")
        await client.expect("response.done")
        await w.wait_until_idle()
        assert [pin["content"] for pin in await w.records("vault")] == pinned


async def test_what_was_written_into_a_pin_by_hand_is_corrected_or_stays(
    start: StartServer,
) -> None:
    """By whether it still says what the memory says; its earlier state goes either way."""
    async with world(start, model=False) as w:
        for text in ("save this: the safe is behind the picture", "save this: the key is in a jar"):
            await w.talk(text)
        first, second = await w.records("vault")
        own = "The safe is behind the picture, says Ana"
        await w.request("PATCH", f"/records/{first['id']}", {"content": own})
        await w.request("PATCH", f"/records/{second['id']}", {"content": "Ask Beatriz"})
        for memory in (await w.request("GET", "/memories"))["memories"]:
            if memory["content"].startswith("save this"):
                await w.request("PATCH", f"/memories/{memory['id']}", {"content": "It is all gone"})
        contents = {pin["content"] for pin in await w.records("vault")}
        assert contents == {"It is all gone", "Ask Beatriz"}
        stored = await stored_text(w.server)
        assert "behind the picture" not in stored
        assert "in a jar" not in stored


async def test_a_pin_is_as_long_as_its_message(start: StartServer) -> None:
    """Also where messages are longer than records may be; it can be exported and imported."""
    async with world(start, model=False, max_text_chars=12_000) as w:
        text = "the story of my boat: " + "and it sailed on " * 600
        await w.talk(f"save this: {text}")
        (pin,) = await w.records("vault")
        assert pin["content"] == text.strip()
        exported = await w.request("GET", "/export")
        await w.request("DELETE", "/memories")
        assert (await w.import_file(exported)).is_success
        (pin,) = await w.records("vault")
        assert pin["content"] == text.strip()


@pytest.mark.parametrize(
    ("draft", "opened"),
    [
        ("tell me about Cape Sorrow", "Cape Sorrow"),
        ("show me the map", "Cape Sorrow"),
        ("give me the gate code", "4711"),
        ("I want to hear about Cape Sorrow", "Cape Sorrow"),
        ("the map, please", "Cape Sorrow"),
        ("I need the gate code", "4711"),
        ("what is the gate code", "4711"),
        ("I had soup today", ""),
    ],
)
async def test_requests_open_what_was_pinned(start: StartServer, draft: str, opened: str) -> None:
    """As questions do."""
    async with world(start, model=False) as w:
        await w.talk("save this: the map of my grandfather ends at Cape Sorrow")
        await w.talk("please pin that the gate code is 4711")
        lines = await w.lines("vault", draft)
        assert opened in lines
        assert bool(lines) == bool(opened)
