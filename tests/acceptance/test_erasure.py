"""Erasure removes a text and everything derived from it, at whatever moment it is requested."""

import asyncio
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.companion_rules import Behaviour, SignificanceRules
from foremind.domain.settings.settings import CompanionSettings
from foremind.llm.prompt.layout import Message
from foremind_client import Client
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Chat, Script, scripted_model
from tests.acceptance.test_http import request
from tests.acceptance.traces import objects_containing, stored_text
from tests.acceptance.world import World, world
from tests.conftest import (
    PATIENCE,
    StartServer,
    all_announcements_handled,
    eventually,
    eventually_async,
    owner_of,
)

SECRET = "I buried the xylophone under the pear tree"
WORD = "xylophone"
FACTS = ("My dog is called Scout", "I live in Porto", "My favourite tea is mint")


def quoted_lines(chat: Chat) -> list[str]:
    """Return the lines with quotations in a request for notes: existing notes and messages."""
    return [line for line in chat["messages"][1]["content"].splitlines() if '"' in line]


def notes_repeating_notes(chat: Chat) -> str:
    """A model whose notes carry the secret on in a word of their own, as existing notes do."""
    task = chat["messages"][0]["content"]
    if '{"operations"' not in task:
        return background_answer(chat)
    shown = "\n".join(quoted_lines(chat))
    message = shown.rpartition('Ana": ')[2].strip('"\n ').partition('"')[0]
    heirloom = "HEIRLOOM" if WORD in shown or "HEIRLOOM" in shown else "plain"
    entry = f"{heirloom}: {message}"[:200]
    return json.dumps({"operations": [{"op": "ADD", "kind": "other", "entry": entry}]})


async def assert_erased(w: World, *words: str) -> None:
    """Assert that these words are in no table, live object, export or prompt."""
    await w.wait_until_idle()
    stored = await stored_text(w.server)
    exported = json.dumps(await w.request("GET", "/export"))
    shown = json.dumps(await w.context("What did I tell you of the tree?"))
    for word in words:
        assert word.lower() not in stored
        assert word.lower() not in exported.lower()
        assert word.lower() not in shown.lower()
        await eventually(lambda word=word: not objects_containing(word))  # type: ignore[misc]


async def memory_id(w: World, text: str) -> int:
    """Return the id of the memory with a text."""
    return int((await w.memories())[text]["id"])


async def test_notes_derived_from_an_erased_note_are_erased(start: StartServer) -> None:
    """Whatever their words; the other notes since then are taken again without it."""
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = notes_repeating_notes
        for text in (SECRET, *FACTS):
            await w.talk(text)
        assert "HEIRLOOM: My favourite tea is mint" in str(await w.records("scratchpad"))
        receipt = await w.request("DELETE", f"/memories/{await memory_id(w, SECRET)}")
        assert receipt["layers"]["scratchpad"] == 4
        await assert_erased(w, WORD, "HEIRLOOM")
        notes = {record["content"] for record in await w.records("scratchpad")}
        assert notes == {f"plain: {fact}" for fact in FACTS}


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_erasing_one_fact_keeps_the_notes_of_others(start: StartServer, model: bool) -> None:
    """Also those that were taken in the same request."""
    facts = [f"My favourite {what} is {which}" for what, which in
             zip(("fruit", "song", "place", "stone", "bird"),
                 ("quince", "yesterday", "lisbon", "granite", "heron"), strict=True)]  # fmt: skip
    async with world(start, model=model) as w:
        for fact in facts:
            await w.talk(fact)
        before = {record["content"] for record in await w.records("scratchpad")}
        await w.request("DELETE", f"/memories/{await memory_id(w, facts[1])}")
        await assert_erased(w, "yesterday")
        after = {record["content"] for record in await w.records("scratchpad")}
        assert len(before) == len(facts)
        assert after == {note for note in before if "yesterday" not in note}


@pytest.mark.parametrize("change", ["forget", "correct"])
async def test_background_work_in_flight_restores_nothing(start: StartServer, change: str) -> None:
    """Its sources have changed by the time its result would be stored."""
    requested, go_on = asyncio.Event(), asyncio.Event()
    async with world(start, model=True) as w:
        assert w.model is not None
        model = w.model.script

        async def apply_change() -> None:
            memory = await memory_id(w, SECRET)
            if change == "forget":
                await w.request("DELETE", f"/memories/{memory}")
            else:
                correction = {"content": "I buried the bassoon under the pear tree"}
                await w.request("PATCH", f"/memories/{memory}", correction)

        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        w.relationship = int(opened["relationship_id"])

        def slow(chat: Chat) -> str:
            model.hold_before, model.hold_after = go_on, 0
            requested.set()
            return background_answer(chat)

        model.background = slow
        await client.send(SECRET)
        await client.expect_all("response.done", "memory.stored")
        await w.request("POST", "/status")
        await asyncio.wait_for(requested.wait(), PATIENCE)
        await apply_change()
        model.background, model.hold_before, model.hold_after = background_answer, None, None
        go_on.set()
        await assert_erased(w, WORD)
        if change == "correct":
            assert "bassoon" in str(await w.records("scratchpad"))


@pytest.mark.parametrize("session_over", [False, True], ids=["session-goes-on", "session-over"])
async def test_queued_background_requests_do_not_contain_erased_texts(
    start: StartServer, session_over: bool
) -> None:
    """Nor does a prompt that is prefilled again after a reply."""
    go_on = asyncio.Event()
    settings = CompanionSettings(
        significance=SignificanceRules(model=True),
        behaviours=(Behaviour("diary", "Write one line of diary.", after=True),),
    )
    async with world(start, model=True, llm_slots=1) as w:
        assert w.model is not None
        script = w.model.script
        script.background = lambda chat: (
            background_answer(chat)
            if '{"' in chat["messages"][0]["content"] and "brushing" not in str(chat)
            else '{"rating": 5}'
        )
        script.hold_for = lambda chat: go_on if "LATER" in str(chat["messages"][-1]) else None
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
        )
        other = await w.server.session("bo")
        await other.send("Tell me LATER")
        await eventually(lambda: bool(script.player_requests))
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        w.relationship = int(opened["relationship_id"])
        await client.send(SECRET)
        await client.expect_all("response.done", "memory.stored")
        await w.request("POST", "/status")

        async def notes_wait_for_a_slot() -> bool:
            steps = (await w.request("GET", "/status"))["steps"]
            return any((step["step"], step["state"]) == ("notes", "slot") for step in steps)

        await eventually_async(notes_wait_for_a_slot)
        if session_over:
            await client.close()
            assert w.server.app.registry.dismiss(opened["session_id"])
        await w.request("DELETE", f"/memories?about={WORD}")
        await all_announcements_handled(w.server)
        requests_before = len(script.requests)
        go_on.set()
        await other.expect_all("response.done", "memory.stored")
        await assert_erased(w, WORD)
        assert len(script.background_requests) > 0
        assert WORD not in json.dumps(script.requests[requests_before:])


@pytest.mark.parametrize("scope", ["", "?about=xylophone"])
async def test_a_reply_in_flight_is_cancelled_and_not_stored(
    start: StartServer, scope: str
) -> None:
    """It may be based on what is erased."""
    go_on = asyncio.Event()
    script = Script(reply=lambda _: ["HEIRLOOM", " it", " is"], background=background_answer)
    async with scripted_model(script) as model:
        w = World(await start(clock=ManualClock(), llm_url=model.url), ManualClock(), model)
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        w.relationship = int(opened["relationship_id"])
        await client.send(SECRET)
        await client.expect_all("response.done", "memory.stored")
        script.hold_before, script.hold_after = go_on, 1
        await client.send("And what do you make of that?", message_id="m2")
        await client.expect("response.output_text.delta")
        await w.request("DELETE", f"/memories{scope}")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("cancelled", "")
        go_on.set()
        stored = await stored_text(w.server)
        assert "heirloom" not in stored
        assert WORD not in stored
        await eventually(lambda: not objects_containing("HEIRLOOM"))


@pytest.mark.parametrize(
    "question", ["What am I scared of?", "what am I scared of", "What am I scared of？"]
)
async def test_replies_that_paraphrase_an_erased_message_are_erased(
    start: StartServer, question: str
) -> None:
    """Those to the message and to a later question about it; other replies stay."""

    def reply(chat: Chat) -> list[str]:
        last = chat["messages"][-1]["content"].rpartition("\n\n")[2]
        if "spiders" in last:
            return ["Eight-legged creatures frighten you."]
        if "scared" in last:  # nothing that it says resembles the message
            return ["The ones with many legs."]
        return ["Mint it is."]

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.reply = reply
        await w.talk("I am afraid of spiders", "My favourite tea is mint")
        await w.next_day()
        await w.talk(question)
        await w.request("DELETE", f"/memories/{await memory_id(w, 'I am afraid of spiders')}")
        await assert_erased(w, "spiders", "Eight-legged", "many legs")
        turns = (await w.request("GET", "/export"))["turns"]
        texts = [turn["text"] for turn in turns]
        assert texts == ["My favourite tea is mint", "Mint it is.", question]


async def test_manual_edits_stay_unless_they_contain_what_is_erased(
    start: StartServer,
) -> None:
    """Also those of core memory, when another record is removed."""
    async with world(start, model=False) as w:
        await w.talk("My dog is called Scout", SECRET)
        core_memory = {"layer": "hot", "content": "She waters the roses at four"}
        await w.request("POST", "/records", core_memory)
        note = {"layer": "scratchpad", "kind": "other", "content": "The xylophone is rented"}
        await w.request("POST", "/records", note)
        pinned = {"layer": "vault", "content": "The gate code is 4711"}
        record_id = (await w.request("POST", "/records", pinned))["id"]
        await w.wait_until_idle()
        await w.next_day()
        assert "rented" in str(await w.records("hot"))
        await w.request("DELETE", f"/records/{record_id}")
        await w.wait_until_idle()
        hot = str(await w.records("hot"))
        assert "waters the roses" in hot
        assert "Scout" in hot
        await w.request("DELETE", "/memories?about=xylophone")
        await assert_erased(w, WORD)
        hot = str(await w.records("hot"))
        assert "waters the roses" in hot
        assert "Scout" in hot


async def test_imported_records_are_erased_with_their_sources(start: StartServer) -> None:
    """Also if records precede their sources in the file."""
    async with world(start, model=False) as w:
        for _ in range(3):
            await w.talk("I painted my windmill. The windmill is my pride")
            await w.next_day()
        exported = await w.request("GET", "/export")
        topic = next(record for record in exported["records"] if record["layer"] == "topics")
        others = [record for record in exported["records"] if record["id"] != topic["id"]]
        exported["records"] = [topic, *others]
        assert topic["sources"]
        await w.request("DELETE", "/memories")
        assert (await w.import_file(exported)).status_code == 201
        await w.request("DELETE", "/memories?about=windmill")
        await assert_erased(w, "windmill")


async def test_erasing_everything_leaves_no_trace(start: StartServer) -> None:
    """No settings, message ids, digests of titles, or cursors."""
    async with world(start, model=False) as w:
        await w.talk("I painted my windmill", "My dog is called Scout")
        await w.next_day()
        settings = {"settings": {"scratchpad": {"prompt": "Note every xylophone."}}}
        await w.request("PATCH", "/config", settings)
        (profile, *_) = await w.records("profile")
        await w.request("DELETE", f"/records/{profile['id']}")
        await w.request("DELETE", "/memories")
        await assert_erased(w, WORD, "windmill", "scout")
        owner = owner_of(w.server.app.core)
        relationship = await owner.fetchrow("SELECT * FROM relationships")
        assert (relationship["settings"], relationship["dismissed"]) == ("{}", [])
        for table in ("turns", "memories", "records", "record_revisions", "memory_changes"):
            assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 0, table


@pytest.mark.parametrize(
    ("path", "param"),
    [("?abot=xylophone", "abot"), ("?about=", "about"), ("?about=%20", "about")],
)
async def test_a_misspelt_filter_erases_nothing(start: StartServer, path: str, param: str) -> None:
    """It is refused, not ignored, which would mean everything."""
    async with world(start, model=False) as w:
        await w.talk(SECRET)
        response = await w.response_to("DELETE", f"/memories{path}")
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
        assert await w.memories()


async def test_a_message_without_a_memory_can_be_erased(start: StartServer) -> None:
    """By the id of its turn."""
    async with world(start, model=False) as w:
        await w.talk("The sky is grey", "I live in Porto")
        turns = (await w.request("GET", "/turns"))["turns"]
        grey, reply, porto, *_ = turns
        assert [turn["text"] for turn in (grey, porto)] == ["The sky is grey", "I live in Porto"]
        assert grey["memory"] is reply["memory"] is None
        memories = (await w.request("GET", "/memories"))["memories"]
        assert porto["memory"] == memories[0]["id"]
        await w.request("DELETE", f"/memories?turn={grey['id']}")
        await assert_erased(w, "sky is grey")
        assert "I live in Porto" in await memory_contents(w)


async def test_turns_are_listed_by_session(start: StartServer) -> None:
    """In pages; an invalid session id is refused."""
    async with world(start, model=False) as w:
        await w.talk("The sky is grey")
        await w.next_day()
        await w.talk("The sky is blue")
        newest, oldest = (await w.request("GET", "/sessions"))["sessions"]
        oldest_path = f"/turns?session={oldest['id']}&limit=1"
        page = await w.request("GET", oldest_path)
        assert [turn["text"] for turn in page["turns"]] == ["The sky is grey"]
        assert {turn["session_id"] for turn in page["turns"]} == {oldest["id"]}
        second = await w.request("GET", f"{oldest_path}&after={page['next_after']}")
        assert [turn["speaker"] for turn in second["turns"]] == ["companion"]
        third = await w.request("GET", f"{oldest_path}&after={second['next_after']}")
        assert third == {"turns": [], "next_after": None}
        assert len((await w.request("GET", "/turns"))["turns"]) == newest["turns"] + oldest["turns"]
        refused = await w.response_to("GET", "/turns?session=yesterday")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "session")


async def memory_contents(w: World) -> set[str]:
    """Return the contents of all memories."""
    memories = (await w.request("GET", "/memories?limit=1000"))["memories"]
    return {memory["content"] for memory in memories}


async def test_a_long_session_is_erased_completely(start: StartServer) -> None:
    """In several transactions, with very frequent terms; other sessions stay."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto")
        await w.next_day()
        await w.talk("My dog is called Scout")
        owner = owner_of(w.server.app.core)
        await owner.execute(_ADD_TURNS_WITH_MEMORIES, datetime(2026, 5, 2, 15, tzinfo=UTC), 1300)
        sessions = (await w.request("GET", "/sessions"))["sessions"]
        long = max(sessions, key=lambda session: session["turns"])
        receipt = await w.request("DELETE", f"/memories?session={long['id']}")
        assert len(receipt["memories"]) > 1300
        assert await owner.fetchval("SELECT count(*) FROM memory_terms WHERE term = 'scout'") == 0
        counted = await owner.fetchrow("SELECT memory_count, term_count FROM relationships")
        kept = await owner.fetchrow("SELECT count(*), coalesce(sum(term_count), 0) FROM memories")
        assert tuple(counted) == pytest.approx(tuple(map(float, kept)))
        assert await memory_contents(w) == {"I live in Porto"}


# Adds $2 turns with memories to the newest session, all with the same terms.
_ADD_TURNS_WITH_MEMORIES = """
WITH newest AS (
    SELECT turn.relationship_id, turn.session_id, turn.user_id, memory.embedding, memory.words
    FROM turns AS turn JOIN memories AS memory
        ON memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
    ORDER BY turn.id DESC LIMIT 1
), new_turns AS (
    INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, content,
        created_at, embedding)
    SELECT relationship_id, session_id, user_id, 'user', 'many-' || number, 'completed',
        'The house and the garden are near the river ' || number, $1, embedding
    FROM newest, generate_series(1, $2::integer) AS number
    RETURNING id, relationship_id, content
), new_memories AS (
    INSERT INTO memories (relationship_id, created_at, source_turn_id, significance, term_count,
        memory_type, speaker, embedding, content, version, words)
    SELECT turn.relationship_id, $1, turn.id, 0.5, 4, 'conversation', 'user', newest.embedding,
        turn.content, 0, newest.words
    FROM new_turns AS turn, newest
    RETURNING id, relationship_id
), new_terms AS (
    INSERT INTO memory_terms (relationship_id, term, memory_id, frequency)
    SELECT relationship_id, term, id, 1
    FROM new_memories, unnest(ARRAY['hous', 'garden', 'near', 'river']) AS term
)
UPDATE relationships SET memory_count = memory_count + $2, term_count = term_count + 4 * $2
"""


class SecretLife:
    """A relationship to which a new secret is told, and from which it is erased, in every round."""

    def __init__(self, w: World, draw: random.Random) -> None:
        self.w = w
        self.draw = draw
        self.word = ""

    @property
    def secret(self) -> str:
        return f"I buried the {self.word} under the pear tree"

    async def tell(self) -> None:
        await self.w.talk(self.secret)

    async def ask(self) -> None:
        await self.w.talk("What did I bury under the tree?")

    async def fact(self) -> None:
        await self.w.talk(self.draw.choice(FACTS))

    async def sleep(self) -> None:
        await self.w.next_day()

    async def write(self) -> None:
        layer = self.draw.choice(("vault", "hot", "scratchpad", "topics", "questions"))
        body = {"layer": layer, "content": self.secret, "title": self.word}
        await self.w.request("POST", "/records", body)
        await self.w.wait_until_idle()

    async def edit(self) -> None:
        records = (await self.w.request("GET", "/records"))["records"]
        if records:
            path = f"/records/{self.draw.choice(records)['id']}"
            await self.w.request("PATCH", path, {"content": f"Edited: {self.secret}"})
            await self.w.wait_until_idle()

    async def move(self) -> None:
        exported = await self.w.request("GET", "/export")
        await self.w.request("DELETE", "/memories")
        assert (await self.w.import_file(exported)).status_code == 201
        await self.w.wait_until_idle()

    async def erase_secret(self) -> None:
        """Erase the secret, perhaps after a correction, perhaps while a reply is in flight."""
        client: Client | None = None
        if self.draw.random() < 0.5:
            client = await self.w.server.connect()
            await client.open_session("wren", user_id="ana", name="Ana")
            await client.send("What did I bury under the tree?")
            await client.expect("message.accepted")
        if self.draw.random() < 0.3:
            page = (await self.w.request("GET", "/memories?limit=1000"))["memories"]
            ids = [memory["id"] for memory in page if memory["content"] == self.secret]
            if ids:
                correction = {"content": "I buried nothing at all"}
                await self.w.request("PATCH", f"/memories/{ids[0]}", correction)
        response = await self.w.response_to("DELETE", f"/memories?about={self.word}")
        assert response.status_code in (200, 404), response.text
        if client is not None:
            await client.expect("response.done")
            await client.close()


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_erasure_is_complete_whatever_happened_before(
    start: StartServer, model: bool
) -> None:
    """Questions, records, edits, imports and new sessions, in random order; other facts stay."""
    draw = random.Random(f"a life with {model=}")
    async with world(start, model=model) as w:
        life = SecretLife(w, draw)
        if w.model is not None:
            w.model.script.reply = quoting_reply
        await w.talk(*FACTS)
        for number in range(5):
            life.word = f"qz{'abcdefgh'[number]}zither"
            steps = draw.choices(
                (life.ask, life.fact, life.sleep, life.write, life.edit, life.move),
                (3, 2, 3, 2, 2, 1),
                k=4,
            )
            await life.tell()
            for step in steps:
                await step()
            await life.erase_secret()
            names = [step.__name__ for step in steps]
            try:
                await assert_erased(w, life.word)
            except AssertionError as error:
                raise AssertionError(f"{life.word} after {names}") from error
            assert set(FACTS) <= await memory_contents(w), names


def quoting_reply(chat: Chat) -> list[str]:
    """A model that repeats the last secret quoted in its prompt."""
    shown: Sequence[Message] = chat["messages"]
    quoted = [part for part in json.dumps(shown).split('\\"') if "zither" in part]
    return ["So it is: ", quoted[-1] if quoted else "nothing", "."]


async def test_the_receipt_counts_erased_records_by_layer(start: StartServer) -> None:
    async with world(start, model=False) as w:
        await w.talk(SECRET)
        await w.next_day()
        status, _, body = await request(
            w.server, "DELETE", f"/v1/relationships/{w.relationship}/memories?user=ana"
        )
        receipt: Any = json.loads(body)
        assert status == 200
        assert sum(receipt["layers"].values()) == receipt["records"] > 0
