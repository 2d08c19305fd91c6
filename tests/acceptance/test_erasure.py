"""Whatever is taken back, and whenever: nothing that holds it or was made of it is left."""

import asyncio
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from foremind.client import Client
from foremind.domain.companion import Behaviour, CompanionFile, CompanionSettings, SignificanceRules
from foremind.llm.prompt.layout import Message
from foremind.testing.background_answers import curate
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Chat, Script, scripted_model
from tests.acceptance.layers import World, world
from tests.acceptance.test_http import request
from tests.acceptance.traces import held_in_process, stored_text
from tests.conftest import (
    PATIENCE,
    StartServer,
    eventually,
    everything_heard,
    owner_of,
    patiently,
)

SECRET = "I buried the xylophone under the pear tree"
WORD = "xylophone"
FACTS = ("My dog is called Scout", "I live in Porto", "My favourite tea is mint")


def notes_of(chat: Chat) -> list[str]:
    """What a request for notes shows: entries and what was said, as quotations."""
    return [line for line in chat["messages"][1]["content"].splitlines() if '"' in line]


def carrying_over(chat: Chat) -> str:
    """A model whose every note repeats what the entries before it said, in a word of its own."""
    task = chat["messages"][0]["content"]
    if '{"operations"' not in task:
        return curate(chat)
    shown = "\n".join(notes_of(chat))
    said = shown.rpartition('Ana": ')[2].strip('"\n ').partition('"')[0]
    heirloom = "HEIRLOOM" if WORD in shown or "HEIRLOOM" in shown else "plain"
    entry = f"{heirloom}: {said}"[:200]
    return json.dumps({"operations": [{"op": "ADD", "kind": "other", "entry": entry}]})


async def gone(w: World, *words: str) -> None:
    """Nothing of these is in a table, an object of the process, an export or a prompt."""
    await w.settled()
    stored = await stored_text(w.server)
    exported = json.dumps(await w.request("GET", "/export"))
    shown = json.dumps(await w.context("What did I tell you of the tree?"))
    for word in words:
        assert word.lower() not in stored
        assert word.lower() not in exported.lower()
        assert word.lower() not in shown.lower()
        await eventually(lambda word=word: not held_in_process(word))  # type: ignore[misc]


async def memory_of(w: World, text: str) -> int:
    """The memory with a text."""
    return int((await w.memories())[text]["id"])


async def test_what_a_model_made_of_an_older_note_goes_with_it(start: StartServer) -> None:
    """However it says it; what else was noted since is noted again without."""
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = carrying_over
        for each in (SECRET, *FACTS):
            await w.talk(each)
        assert "HEIRLOOM: My favourite tea is mint" in str(await w.records("scratchpad"))
        receipt = await w.request("DELETE", f"/memories/{await memory_of(w, SECRET)}")
        assert receipt["layers"]["scratchpad"] == 4
        await gone(w, WORD, "HEIRLOOM")
        notes = {record["content"] for record in await w.records("scratchpad")}
        assert notes == {f"plain: {each}" for each in FACTS}


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_forgetting_one_fact_leaves_the_notes_of_the_others(
    start: StartServer, model: bool
) -> None:
    """Also those that were written together with it."""
    facts = [f"My favourite {what} is {which}" for what, which in
             zip(("fruit", "song", "place", "stone", "bird"),
                 ("quince", "yesterday", "lisbon", "granite", "heron"), strict=True)]  # fmt: skip
    async with world(start, model=model) as w:
        for fact in facts:
            await w.talk(fact)
        before = {record["content"] for record in await w.records("scratchpad")}
        await w.request("DELETE", f"/memories/{await memory_of(w, facts[1])}")
        await gone(w, "yesterday")
        after = {record["content"] for record in await w.records("scratchpad")}
        assert len(before) == len(facts)
        assert after == {each for each in before if "yesterday" not in each}


@pytest.mark.parametrize("change", ["forget", "correct"])
async def test_background_work_under_way_brings_nothing_back(
    start: StartServer, change: str
) -> None:
    """What it was made of is another by the time that it would be written."""
    waiting, go_on = asyncio.Event(), asyncio.Event()
    async with world(start, model=True) as w:
        assert w.model is not None
        model = w.model.script

        async def change_it() -> None:
            memory = await memory_of(w, SECRET)
            if change == "forget":
                await w.request("DELETE", f"/memories/{memory}")
            else:
                now = {"content": "I buried the bassoon under the pear tree"}
                await w.request("PATCH", f"/memories/{memory}", now)

        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        w.relationship = int(opened["relationship_id"])

        def slow(chat: Chat) -> str:
            model.hold_before, model.hold_after = go_on, 0
            waiting.set()
            return curate(chat)

        model.background = slow
        await client.send(SECRET)
        await client.expect_all("response.done", "memory.stored")
        await asyncio.wait_for(waiting.wait(), PATIENCE)
        await change_it()
        model.background, model.hold_before, model.hold_after = curate, None, None
        go_on.set()
        await gone(w, WORD)
        if change == "correct":
            assert "bassoon" in str(await w.records("scratchpad"))


@pytest.mark.parametrize("over", [False, True], ids=["session-goes-on", "session-over"])
async def test_what_waits_for_a_model_is_not_asked_any_more(start: StartServer, over: bool) -> None:
    """Nor is what a player was answered by read again, once it holds what is forgotten."""
    go_on = asyncio.Event()
    settings = CompanionSettings(
        significance=SignificanceRules(model=True),
        behaviours=(Behaviour("diary", "Write one line of diary.", after=True),),
    )
    async with world(start, model=True, llm_slots=1) as w:
        assert w.model is not None
        script = w.model.script
        script.background = lambda chat: (
            curate(chat)
            if '{"' in chat["messages"][0]["content"] and "brushing" not in str(chat)
            else '{"rating": 5}'
        )
        script.holds = lambda chat: go_on if "LATER" in str(chat["messages"][-1]) else None
        await w.server.app.core.companions.put(
            CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
        )
        other = await w.server.session("bo")
        await other.send("Tell me LATER")
        await eventually(lambda: bool(script.spoken))
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        w.relationship = int(opened["relationship_id"])
        await client.send(SECRET)
        await client.expect_all("response.done", "memory.stored")

        async def waits() -> bool:
            steps = (await w.request("GET", "/status"))["steps"]
            return any((step["step"], step["state"]) == ("notes", "slot") for step in steps)

        await patiently(waits)
        if over:
            await client.close()
            assert w.server.app.registry.dismiss(opened["session_id"])
        await w.request("DELETE", f"/memories?about={WORD}")
        await everything_heard(w.server)
        asked = len(script.requests)
        go_on.set()
        await other.expect_all("response.done", "memory.stored")
        await gone(w, WORD)
        assert len(script.asked) > 0
        assert WORD not in json.dumps(script.requests[asked:])


@pytest.mark.parametrize("scope", ["", "?about=xylophone"])
async def test_a_reply_under_way_is_stopped_and_not_kept(start: StartServer, scope: str) -> None:
    """It may be made of what is forgotten; its message, if left, is answered when sent again."""
    go_on = asyncio.Event()
    script = Script(reply=lambda _: ["HEIRLOOM", " it", " is"], background=curate)
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
        await eventually(lambda: not held_in_process("HEIRLOOM"))


async def test_a_reply_that_says_it_in_other_words_goes(start: StartServer) -> None:
    """The answer to it, and the answer to a later question about it; another reply stays."""

    def reply(chat: Chat) -> list[str]:
        last = chat["messages"][-1]["content"].rpartition("\n\n")[2]
        if "spiders" in last or "scared" in last:
            return ["Eight-legged creatures frighten you."]
        return ["Mint it is."]

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.reply = reply
        await w.talk("I am afraid of spiders", "My favourite tea is mint")
        await w.next_day()
        await w.talk("What am I scared of?")
        await w.request("DELETE", f"/memories/{await memory_of(w, 'I am afraid of spiders')}")
        await gone(w, "spiders", "Eight-legged")
        turns = (await w.request("GET", "/export"))["turns"]
        said = [turn["text"] for turn in turns]
        assert said == ["My favourite tea is mint", "Mint it is.", "What am I scared of?"]


async def test_what_somebody_wrote_stays_unless_it_holds_what_is_forgotten(
    start: StartServer,
) -> None:
    """The hot context with its own words, too, when something else is removed."""
    async with world(start, model=False) as w:
        await w.talk("My dog is called Scout", SECRET)
        mine = {"layer": "hot", "content": "She waters the roses at four"}
        await w.request("POST", "/records", mine)
        note = {"layer": "scratchpad", "kind": "other", "content": "The xylophone is rented"}
        await w.request("POST", "/records", note)
        vault = {"layer": "vault", "content": "The gate code is 4711"}
        number = (await w.request("POST", "/records", vault))["id"]
        await w.settled()
        await w.next_day()
        assert "rented" in str(await w.records("hot"))
        await w.request("DELETE", f"/records/{number}")
        await w.settled()
        hot = str(await w.records("hot"))
        assert "waters the roses" in hot
        assert "Scout" in hot
        await w.request("DELETE", "/memories?about=xylophone")
        await gone(w, WORD)
        hot = str(await w.records("hot"))
        assert "waters the roses" in hot
        assert "Scout" in hot


async def test_forgetting_follows_an_import(start: StartServer) -> None:
    """Records of the file may be made of others that come later in it."""
    async with world(start, model=False) as w:
        for _ in range(3):
            await w.talk("I painted my windmill. The windmill is my pride")
            await w.next_day()
        exported = await w.request("GET", "/export")
        topic = next(each for each in exported["records"] if each["layer"] == "topics")
        others = [each for each in exported["records"] if each["id"] != topic["id"]]
        exported["records"] = [topic, *others]
        assert topic["sources"]
        await w.request("DELETE", "/memories")
        assert (await w.imported(exported)).status_code == 201
        await w.request("DELETE", "/memories?about=windmill")
        await gone(w, "windmill")


async def test_after_everything_is_forgotten_nothing_tells_how_it_was(start: StartServer) -> None:
    """Neither settings, nor message ids, nor digests of titles, nor cursors."""
    async with world(start, model=False) as w:
        await w.talk("I painted my windmill", "My dog is called Scout")
        await w.next_day()
        settings = {"settings": {"scratchpad": {"prompt": "Note every xylophone."}}}
        await w.request("PATCH", "/config", settings)
        (profile, *_) = await w.records("profile")
        await w.request("DELETE", f"/records/{profile['id']}")
        await w.request("DELETE", "/memories")
        await gone(w, WORD, "windmill", "scout")
        owner = owner_of(w.server.app.core)
        left = await owner.fetchrow("SELECT * FROM relationships")
        assert (left["settings"], left["dismissed"], left["shares_counts"]) == ("{}", [], False)
        for table in ("turns", "memories", "records", "record_revisions", "memory_changes"):
            assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 0, table


@pytest.mark.parametrize(
    ("path", "param"),
    [("?abot=xylophone", "abot"), ("?about=", "about"), ("?about=%20", "about")],
)
async def test_a_misspelt_wish_forgets_nothing(start: StartServer, path: str, param: str) -> None:
    """It is refused, rather than taken for everything."""
    async with world(start, model=False) as w:
        await w.talk(SECRET)
        answer = await w.answer("DELETE", f"/memories{path}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        assert await w.memories()


async def test_a_sentence_that_was_not_kept_can_be_forgotten(start: StartServer) -> None:
    """By its turn."""
    async with world(start, model=False) as w:
        await w.talk("The sky is grey", "I live in Porto")
        turns = (await w.request("GET", "/turns"))["turns"]
        grey, answered, porto, *_ = turns
        assert [each["text"] for each in (grey, porto)] == ["The sky is grey", "I live in Porto"]
        assert grey["memory"] is answered["memory"] is None
        memories = (await w.request("GET", "/memories"))["memories"]
        assert porto["memory"] == memories[0]["id"]
        await w.request("DELETE", f"/memories?turn={grey['id']}")
        await gone(w, "sky is grey")
        assert "I live in Porto" in await held(w)


async def test_what_was_said_is_listed_session_by_session(start: StartServer) -> None:
    """In pages; what is no session is refused, and one of nobody's has nothing."""
    async with world(start, model=False) as w:
        await w.talk("The sky is grey")
        await w.next_day()
        await w.talk("The sky is blue")
        newest, oldest = (await w.request("GET", "/sessions"))["sessions"]
        of_oldest = f"/turns?session={oldest['id']}&limit=1"
        page = await w.request("GET", of_oldest)
        assert [each["text"] for each in page["turns"]] == ["The sky is grey"]
        assert {each["session_id"] for each in page["turns"]} == {oldest["id"]}
        second = await w.request("GET", f"{of_oldest}&after={page['next_after']}")
        assert [each["speaker"] for each in second["turns"]] == ["companion"]
        third = await w.request("GET", f"{of_oldest}&after={second['next_after']}")
        assert third == {"turns": [], "next_after": None}
        assert len((await w.request("GET", "/turns"))["turns"]) == newest["turns"] + oldest["turns"]
        refused = await w.answer("GET", "/turns?session=yesterday")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "session")


async def held(w: World) -> set[str]:
    """The memories there are."""
    return {
        each["content"] for each in (await w.request("GET", "/memories?limit=1000"))["memories"]
    }


async def test_a_long_session_is_forgotten_whole(start: StartServer) -> None:
    """In several transactions, with words as common as can be; another session stays."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto")
        await w.next_day()
        await w.talk("My dog is called Scout")
        owner = owner_of(w.server.app.core)
        await owner.execute(_MANY, datetime(2026, 5, 2, 15, tzinfo=UTC), 1300)
        sessions = (await w.request("GET", "/sessions"))["sessions"]
        long = max(sessions, key=lambda each: each["turns"])
        receipt = await w.request("DELETE", f"/memories?session={long['id']}")
        assert len(receipt["memories"]) > 1300
        assert await owner.fetchval("SELECT count(*) FROM memory_terms WHERE term = 'scout'") == 0
        counted = await owner.fetchrow("SELECT memory_count, term_count FROM relationships")
        kept = await owner.fetchrow("SELECT count(*), coalesce(sum(term_count), 0) FROM memories")
        assert tuple(counted) == pytest.approx(tuple(map(float, kept)))
        assert await held(w) == {"I live in Porto"}


# As many turns with memories as said, in the newest session, all holding the same words.
_MANY = """
WITH whose AS (
    SELECT turn.relationship_id, turn.session_id, turn.user_id, memory.embedding, memory.words
    FROM turns AS turn JOIN memories AS memory ON memory.source_turn_id = turn.id
    ORDER BY turn.id DESC LIMIT 1
), said AS (
    INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, content,
        created_at, embedding)
    SELECT relationship_id, session_id, user_id, 'user', 'many-' || each, 'completed',
        'The house and the garden are near the river ' || each, $1, embedding
    FROM whose, generate_series(1, $2::integer) AS each
    RETURNING id, relationship_id, content
), kept AS (
    INSERT INTO memories (relationship_id, created_at, source_turn_id, significance, term_count,
        memory_type, speaker, embedding, content, version, words)
    SELECT said.relationship_id, $1, said.id, 0.5, 4, 'conversation', 'user', whose.embedding,
        said.content, 0, whose.words
    FROM said, whose
    RETURNING id, relationship_id
), words AS (
    INSERT INTO memory_terms (relationship_id, term, memory_id, frequency)
    SELECT relationship_id, term, id, 1
    FROM kept, unnest(ARRAY['hous', 'garden', 'near', 'river']) AS term
)
UPDATE relationships SET memory_count = memory_count + $2, term_count = term_count + 4 * $2
"""


class Life:
    """A relationship in which something new is told and taken back in every round."""

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
        await self.w.settled()

    async def edit(self) -> None:
        records = (await self.w.request("GET", "/records"))["records"]
        if records:
            path = f"/records/{self.draw.choice(records)['id']}"
            await self.w.request("PATCH", path, {"content": f"Edited: {self.secret}"})
            await self.w.settled()

    async def move(self) -> None:
        exported = await self.w.request("GET", "/export")
        await self.w.request("DELETE", "/memories")
        assert (await self.w.imported(exported)).status_code == 201
        await self.w.settled()

    async def take_back(self) -> None:
        """Forget in one of the ways, while a reply is under way or not."""
        client: Client | None = None
        if self.draw.random() < 0.5:
            client = await self.w.server.connect()
            await client.open_session("wren", user_id="ana", name="Ana")
            await client.send("What did I bury under the tree?")
            await client.expect("message.accepted")
        if self.draw.random() < 0.3:
            page = (await self.w.request("GET", "/memories?limit=1000"))["memories"]
            mine = [each["id"] for each in page if each["content"] == self.secret]
            if mine:
                corrected = {"content": "I buried nothing at all"}
                await self.w.request("PATCH", f"/memories/{mine[0]}", corrected)
        answer = await self.w.answer("DELETE", f"/memories?about={self.word}")
        assert answer.status_code in (200, 404), answer.text
        if client is not None:
            await client.expect("response.done")
            await client.close()


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_nothing_is_left_of_what_was_taken_back_whatever_was_done_with_it(
    start: StartServer, model: bool
) -> None:
    """Told, asked for, noted, written, edited, moved, slept over; the facts stay."""
    draw = random.Random(f"a life with {model=}")
    async with world(start, model=model) as w:
        life = Life(w, draw)
        if w.model is not None:
            w.model.script.reply = echoing
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
            await life.take_back()
            names = [each.__name__ for each in steps]
            try:
                await gone(w, life.word)
            except AssertionError as error:
                raise AssertionError(f"{life.word} after {names}") from error
            assert set(FACTS) <= await held(w), names


def echoing(chat: Chat) -> list[str]:
    """A model that repeats the last quotation that it was shown."""
    shown: Sequence[Message] = chat["messages"]
    quoted = [part for part in json.dumps(shown).split('\\"') if "zither" in part]
    return ["So it is: ", quoted[-1] if quoted else "nothing", "."]


async def test_forgetting_is_told_by_its_receipt(start: StartServer) -> None:
    """Layer by layer."""
    async with world(start, model=False) as w:
        await w.talk(SECRET)
        await w.next_day()
        status, _, body = await request(
            w.server, "DELETE", f"/v1/relationships/{w.relationship}/memories?user=ana"
        )
        receipt: Any = json.loads(body)
        assert status == 200
        assert sum(receipt["layers"].values()) == receipt["records"] > 0
