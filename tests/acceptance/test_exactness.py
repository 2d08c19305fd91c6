"""Forgetting takes what was asked to go, and nothing else; what is left is made anew."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from foremind.domain.companion import CompanionFile
from foremind.testing.background_answers import curate
from foremind.testing.model_server import Chat
from tests.acceptance.layers import World, world
from tests.acceptance.test_erasure import FACTS, SECRET, WORD, carrying_over, gone, held, memory_of
from tests.acceptance.test_twins import curated
from tests.acceptance.traces import stored_text
from tests.conftest import StartServer, owner_of, patiently

WITH_AND_WITHOUT = pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])


async def contents(w: World, layer: str) -> set[str]:
    """What the records of a layer say."""
    return {record["content"] for record in await w.records(layer)}


async def record_of(w: World, layer: str, word: str) -> Any:
    """The record of a layer that holds a word."""
    (found,) = [record for record in await w.records(layer) if word in record["content"]]
    return found


@WITH_AND_WITHOUT
@pytest.mark.parametrize("layer", ["scratchpad", "profile", "episodes"])
async def test_a_removed_record_stays_away(start: StartServer, layer: str, model: bool) -> None:
    """Whatever else is forgotten afterwards; what was made beside it stays."""
    async with world(start, model=model) as w:
        await w.talk(*FACTS)
        await w.next_day()
        await w.talk("My favourite stone is granite")
        await w.next_day()
        word = "Porto" if layer == "profile" else "mint"
        before = await contents(w, layer)
        removed = await record_of(w, layer, word)
        await w.request("DELETE", f"/records/{removed['id']}")
        await w.settled()
        await w.next_day()
        assert await contents(w, layer) == before - {removed["content"]}
        await w.request("DELETE", f"/memories/{await memory_of(w, FACTS[0])}")
        await w.settled()
        await w.next_day()
        assert removed["content"] not in await contents(w, layer)
        assert set(FACTS[1:]) <= await held(w)


@WITH_AND_WITHOUT
@pytest.mark.parametrize("layer", ["questions", "episodes"])
async def test_what_is_told_again_brings_nothing_back_that_was_removed(
    start: StartServer, layer: str, model: bool
) -> None:
    """When something else of the same session is forgotten."""
    async with world(start, model=model) as w:
        await w.talk("I repaired the bicycle of Klara in the yard",
                     "Let's talk about the regatta in Lisbon later", SECRET)  # fmt: skip
        await w.next_day()
        assert len(await w.records("questions")) == len(await w.records("episodes")) == 1
        (removed,) = await w.records(layer)
        await w.request("DELETE", f"/records/{removed['id']}")
        await w.settled()
        await w.request("DELETE", f"/memories?about={WORD}")
        await gone(w, WORD)
        kept = {"questions": "episodes", "episodes": "questions"}[layer]
        assert (await w.records(layer), len(await w.records(kept))) == ([], 1)


@WITH_AND_WITHOUT
@pytest.mark.parametrize("again", [False, True], ids=["settled", "asked-again"])
async def test_a_question_is_open_as_if_what_is_forgotten_had_never_been_said(
    start: StartServer, again: bool, model: bool
) -> None:
    """Neither settled by it, nor asked once more; and not gone."""

    def settling(chat: Chat) -> str:
        answer = json.loads(curate(chat))
        if "xylophone is found" in chat["messages"][1]["content"]:
            answer["settled"] = [1]
        return json.dumps(answer)

    async with world(start, model=model) as w:
        if w.model is not None:
            w.model.script.background = settling
        await w.talk("Let's talk about the broken xylophone of Zarco later")
        await w.next_day()
        (before,) = await w.records("questions")
        said = ("Let's talk about the broken xylophone of Zarco later today" if again
                else "The broken xylophone is found, that is settled, Zarco has it")  # fmt: skip
        client = await w.talk(said)
        await client.close()
        await w.next_day()
        (changed,) = await w.records("questions")
        assert changed["details"] != before["details"]
        newest = (await w.request("GET", "/sessions"))["sessions"][0]
        await w.request("DELETE", f"/memories?session={newest['id']}")
        await w.settled()
        (left,) = await w.records("questions")
        assert (left["content"], left["details"]) == (before["content"], before["details"])


async def test_what_is_stated_anew_is_noted_though_its_like_was_removed(
    start: StartServer,
) -> None:
    """Only the very same is not noted again."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto")
        removed = await record_of(w, "profile", "Porto")
        await w.request("DELETE", f"/records/{removed['id']}")
        await w.talk("I moved to Lisbon")
        stated = str(await contents(w, "profile"))
        assert "Lisbon" in stated
        assert "Porto" not in stated


@WITH_AND_WITHOUT
async def test_where_the_last_session_was_left_is_what_is_left_of_it(
    start: StartServer, model: bool
) -> None:
    """An older session that is told again changes nothing of it; the one before takes its place."""
    async with world(start, model=model) as w:
        await w.talk("I planted tulips in the garden", "I painted the fence in blue")
        await w.next_day()
        await w.talk("I baked a cake for the wedding")
        await w.next_day()
        await w.talk("I repaired the old bicycle")
        await w.next_day()
        await w.request(
            "DELETE", f"/memories/{await memory_of(w, 'I planted tulips in the garden')}"
        )
        await w.settled()
        (opening,) = await w.records("opening")
        assert "bicycle" in opening["content"]
        assert "fence" in str(await w.records("episodes"))
        newest = (await w.request("GET", "/sessions"))["sessions"][0]
        await w.request("DELETE", f"/memories?session={newest['id']}")
        await gone(w, "bicycle")
        (opening,) = await w.records("opening")
        assert "cake" in opening["content"]


async def test_what_was_said_again_elsewhere_is_still_remembered(start: StartServer) -> None:
    """As of the session that is left."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto", "My favourite colour is green")
        await w.next_day()
        await w.talk("I live in Porto")
        await w.next_day()
        oldest = (await w.request("GET", "/sessions"))["sessions"][-1]
        await w.request("DELETE", f"/memories?session={oldest['id']}")
        await gone(w, "green")
        assert await held(w) == {"I live in Porto"}
        (memory,) = (await w.memories()).values()
        assert memory["times_said"] == 1
        assert "Porto" in str(await contents(w, "profile"))


async def test_the_newest_statement_holds_whatever_goes_between(start: StartServer) -> None:
    """Of three homes the first does not hold again when the second is forgotten."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto")
        await w.talk("I moved to Lisbon")
        await w.talk("I moved to Faro")
        await w.request("DELETE", f"/memories/{await memory_of(w, 'I moved to Lisbon')}")
        await gone(w, "lisbon")
        known = await w.memories()
        assert known["I live in Porto"]["superseded_by"] == known["I moved to Faro"]["id"]
        changed = {"content": "I like Faro"}
        await w.request("PATCH", f"/memories/{known['I moved to Faro']['id']}", changed)
        await w.settled()
        known = await w.memories()
        assert known["I live in Porto"]["superseded_by"] is None


async def test_of_the_hot_context_written_by_hand_the_lines_go(start: StartServer) -> None:
    """The others stay, in earlier states as well."""
    async with world(start, model=False) as w:
        await w.talk("My dog is called Scout")
        first = {"layer": "hot", "content": f"She waters the roses at four\n{SECRET}"}
        number = (await w.request("POST", "/records", first))["id"]
        second = {"content": f"She waters the roses at five\n{SECRET}\nThe gate is green"}
        await w.request("PATCH", f"/records/{number}", second)
        await w.settled()
        receipt = await w.request("DELETE", "/memories?about=xylophone")
        assert receipt["shortened"] == 1
        await gone(w, WORD)
        hot = str(await w.records("hot"))
        assert "roses at five" in hot
        assert "The gate is green" in hot
        (record,) = await w.records("hot")
        states = await w.request("GET", f"/records/{record['id']}/revisions")
        assert "roses at four" in str(states)


@pytest.mark.parametrize("scope", ["everything", "session"])
async def test_a_reply_that_comes_while_much_is_forgotten_goes_with_it(
    start: StartServer, scope: str
) -> None:
    """It may be made of what is still there; what the user says meanwhile stays."""
    async with world(start, model=False) as w:
        await w.talk("The gate code is 4711")
        owner = owner_of(w.server.app.core)
        await owner.execute(_MANY, datetime(2026, 5, 2, 15, tzinfo=UTC), 1200)
        (session,) = (await w.request("GET", "/sessions"))["sessions"]
        path = "" if scope == "everything" else f"?session={session['id']}"

        async def waiting(count: int) -> None:
            async def as_many() -> bool:
                return bool(await owner.fetchval(_WAITING) >= count)

            await patiently(as_many)

        async with owner.acquire() as first, owner.acquire() as between:
            blocked, storing = first.transaction(), between.transaction()
            await blocked.start()
            await first.execute(_LOCK, w.relationship)
            forgetting = asyncio.create_task(w.request("DELETE", f"/memories{path}"))
            await waiting(1)
            await storing.start()
            locked = asyncio.create_task(between.execute(_LOCK, w.relationship))
            await waiting(2)
            await blocked.rollback()
            await locked
            assert not forgetting.done()
            for speaker in ("user", "companion"):
                await between.execute(_SAID, speaker, f"It was 4711, said the {speaker}")
            await storing.commit()
            await forgetting
        left = await owner.fetch("SELECT content FROM turns WHERE content <> ''")
        assert [each["content"] for each in left] == ["It was 4711, said the user"]


_LOCK = "SELECT FROM relationships WHERE id = $1 FOR UPDATE"
_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
_SAID = """
INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, content,
    created_at)
SELECT relationship_id, id, user_id, $1, CASE $1 WHEN 'user' THEN 'later' END, 'completed', $2,
    now()
FROM (
    SELECT session.relationship_id, session.id, bond.user_id FROM sessions AS session
    JOIN relationships AS bond ON bond.id = session.relationship_id
    LIMIT 1
) AS going_on
"""


async def test_what_was_saved_in_a_long_session_goes_with_it(start: StartServer) -> None:
    """What was written down beside it stays."""
    async with world(start, model=False) as w:
        await w.talk("Save this: the gate code is heron")
        vault = {"layer": "vault", "content": "The key is below the mat"}
        await w.request("POST", "/records", vault)
        owner = owner_of(w.server.app.core)
        await owner.execute(_MANY, datetime(2026, 5, 2, 15, tzinfo=UTC), 30)
        (session,) = (await w.request("GET", "/sessions"))["sessions"]
        await w.request("DELETE", f"/memories?session={session['id']}")
        await gone(w, "heron")
        assert await contents(w, "vault") == {"The key is below the mat"}


_MANY = """
INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, content,
    created_at)
SELECT relationship_id, session_id, user_id, 'user', 'many-' || each, 'completed',
    'The house is near the river ' || each, $1
FROM (SELECT * FROM turns ORDER BY id LIMIT 1) AS first, generate_series(1, $2::integer) AS each
"""


async def test_what_is_inferred_names_nothing_that_is_forgotten(start: StartServer) -> None:
    """It is counted anew of what is left."""
    async with world(start, model=False) as w:
        for _ in range(3):
            await w.talk("I painted my windmill", "I love the windmill and the river",
                         "I swim in the river")  # fmt: skip
            await w.next_day()
        for _ in range(8):
            await w.next_day()
        await w.talk("I swim in the river", "I love the river")
        await w.next_day()
        (inferred,) = await w.records("profile", "favourite topics")
        assert "windmill" in inferred["content"]
        for text in ("I painted my windmill", "I love the windmill and the river"):
            await w.request("DELETE", f"/memories/{await memory_of(w, text)}")
        await gone(w, "windmill")
        (inferred,) = await w.records("profile", "favourite topics")
        assert "river" in inferred["content"]


@pytest.mark.parametrize("word", ["questions", "status", "conclusions", "event"])
async def test_only_what_is_said_counts_as_a_mention(start: StartServer, word: str) -> None:
    """Not how records are kept."""
    async with world(start, model=False) as w:
        await w.talk("My goal is to sail. Let's talk about the harbour later", "I live in Porto")
        await w.next_day()
        layers = ("scratchpad", "questions", "episodes")
        before = [await contents(w, layer) for layer in layers]
        await w.request("POST", "/records", {"layer": "vault", "content": f"{word} of mine"})
        await w.request("DELETE", f"/memories?about={word}%20mine")
        await w.request("POST", "/records", {"layer": "vault", "content": f"{word} and {word}"})
        receipt = await w.request("DELETE", f"/memories?about={word}")
        assert set(receipt["layers"]) - {"hot"} <= {"vault", "profile"}
        await w.settled()
        assert [await contents(w, layer) for layer in layers] == before


async def test_notes_are_made_again_though_the_transcript_is_gone(start: StartServer) -> None:
    """Of what is remembered of it."""
    async with world(start, model=True, retention_days={"transcript": 3}) as w:
        assert w.model is not None
        w.model.script.background = carrying_over
        for each in (SECRET, *FACTS):
            await w.talk(each)
        for _ in range(5):
            await w.next_day()
        owner = owner_of(w.server.app.core)
        assert await owner.fetchval("SELECT count(*) FROM turns WHERE content <> ''") == 0
        receipt = await w.request("DELETE", f"/memories/{await memory_of(w, SECRET)}")
        assert receipt["remade"]["scratchpad"] == len(FACTS)
        await gone(w, WORD, "HEIRLOOM")
        assert await contents(w, "scratchpad") == {f"plain: {each}" for each in FACTS}


async def test_what_was_said_again_is_told_again_though_the_transcript_is_gone(
    start: StartServer,
) -> None:
    """Its memory is that of whoever said it first."""
    async with world(start, model=True, retention_days={"transcript": 3}) as w:
        assert w.model is not None
        w.model.script.background = curated
        client = await w.talk("I live in Porto")
        await client.close()
        await w.next_day()
        client = await w.talk("I live in Porto", SECRET, "My dog is called Scout")
        await client.close()
        for _ in range(5):
            await w.next_day()
        await w.request("DELETE", f"/memories/{await memory_of(w, SECRET)}")
        await gone(w, WORD)
        assert "I live in Porto / My dog is called Scout" in await contents(w, "episodes")


async def test_an_old_note_takes_no_newer_one_along(start: StartServer) -> None:
    """Which a model wrote while it was shown the old one; forgetting still finds it."""
    async with world(start, model=True, retention_days={"scratchpad": 4}) as w:
        assert w.model is not None
        w.model.script.background = carrying_over
        await w.talk(SECRET)
        for _ in range(3):
            await w.next_day()
        await w.talk("I live in Porto")
        for _ in range(3):
            await w.next_day()
        assert await contents(w, "scratchpad") == {"HEIRLOOM: I live in Porto"}
        await w.request("DELETE", f"/memories/{await memory_of(w, SECRET)}")
        await gone(w, WORD, "HEIRLOOM")
        assert await contents(w, "scratchpad") == {"plain: I live in Porto"}


async def test_what_an_operator_lets_go_by_age_reaches_who_sleeps(start: StartServer) -> None:
    """Also where it is set for one relationship."""
    async with world(start, model=False) as w:
        await w.talk("ok, grey, ok")
        await w.next_day()
        settings = {"settings": {"retention_days": {"transcript": 3}}}
        await w.request("PATCH", "/config", settings)
        await w.settled()
        owner = owner_of(w.server.app.core)
        await owner.execute("UPDATE relationships SET due_at = NULL, woken_at = '2026-04-01'")
        for _ in range(5):
            await w.next_day()
        said = await owner.fetch("SELECT content FROM turns WHERE content <> ''")
        assert said == []


async def test_no_name_is_left_where_nothing_is(start: StartServer) -> None:
    """Once everything is forgotten and nobody talks any more."""
    async with world(start, model=False) as w:
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Zenobia")
        w.relationship = int(opened["relationship_id"])
        await client.send("I live in Porto")
        await client.expect_all("response.done", "memory.stored")
        await client.close()
        await w.request("DELETE", "/memories")
        await w.settled()
        await w.next_day()
        assert "zenobia" not in await stored_text(w.server)
        assert not await owner_of(w.server.app.core).fetchval("SELECT count(*) FROM sessions")


async def test_a_reply_that_only_shares_a_common_word_stays(start: StartServer) -> None:
    """Though nobody else said that word."""

    def reply(chat: Chat) -> list[str]:
        last = chat["messages"][-1]["content"].rpartition("\n\n")[2]
        return ["I hope that you sleep well tonight."] if "tired" in last else ["I see."]

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.reply = reply
        await w.talk("I really hope that my exam in chemistry goes fine", "I am tired now")
        texts = "I really hope that my exam in chemistry goes fine"
        await w.request("DELETE", f"/memories/{await memory_of(w, texts)}")
        await gone(w, "chemistry")
        said = [each["text"] for each in (await w.request("GET", "/export"))["turns"]]
        assert said == ["I am tired now", "I hope that you sleep well tonight."]


async def test_what_was_imported_is_contradicted_as_if_it_were_said_here(
    start: StartServer,
) -> None:
    """And holds again when what contradicts it is forgotten."""
    async with world(start, model=False) as w:
        await w.server.app.core.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
        await w.talk("I live in Porto")
        exported = await w.request("GET", "/export")
        w.relationship = int((await w.imported(exported, "mara")).json()["id"])
        client = await w.server.connect()
        await client.open_session("mara", user_id="ana", name="Ana")
        await client.send("I moved to Lisbon")
        await client.expect_all("response.done", "memory.stored")
        await w.settled()
        known = await w.memories()
        assert known["I live in Porto"]["superseded_by"] == known["I moved to Lisbon"]["id"]


@WITH_AND_WITHOUT
async def test_a_receipt_names_what_went_and_what_is_made_anew(
    start: StartServer, model: bool
) -> None:
    """Layer by layer."""
    async with world(start, model=model) as w:
        await w.talk(SECRET, *FACTS)
        await w.next_day()
        receipt = await w.request("DELETE", f"/memories/{await memory_of(w, SECRET)}")
        assert receipt["turns"] == len(receipt["memories"]) + 1  # the reply to it
        assert receipt["layers"]["episodes"] == receipt["remade"]["episodes"] == 1
        assert receipt["remade"]["opening"] == receipt["layers"]["opening"] == 1
        assert receipt["remade"].get("hot") == receipt["layers"]["hot"]
