"""Erasure removes what was requested and nothing else, and derived records are rebuilt."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from foremind.domain.companion import CompanionFile
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.model_server import Chat
from tests.acceptance.test_erasure import (
    FACTS,
    SECRET,
    WORD,
    assert_erased,
    memory_contents,
    memory_id,
    notes_repeating_notes,
)
from tests.acceptance.test_erasure_twins import verbatim_background
from tests.acceptance.traces import stored_text
from tests.acceptance.world import World, world
from tests.conftest import StartServer, eventually_async, owner_of

WITH_AND_WITHOUT_MODEL = pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])


async def contents(w: World, layer: str) -> set[str]:
    """Return the contents of the records of a layer."""
    return {record["content"] for record in await w.records(layer)}


async def record_with(w: World, layer: str, word: str) -> Any:
    """Return the only record of a layer that contains a word."""
    (match,) = [record for record in await w.records(layer) if word in record["content"]]
    return match


@WITH_AND_WITHOUT_MODEL
@pytest.mark.parametrize("layer", ["scratchpad", "profile", "episodes"])
async def test_a_removed_record_is_not_rebuilt(start: StartServer, layer: str, model: bool) -> None:
    """Whatever else is erased afterwards; the other records of the layer stay."""
    async with world(start, model=model) as w:
        await w.talk(*FACTS)
        await w.next_day()
        await w.talk("My favourite stone is granite")
        await w.next_day()
        word = "Porto" if layer == "profile" else "mint"
        before = await contents(w, layer)
        removed = await record_with(w, layer, word)
        await w.request("DELETE", f"/records/{removed['id']}")
        await w.wait_until_idle()
        await w.next_day()
        assert await contents(w, layer) == before - {removed["content"]}
        await w.request("DELETE", f"/memories/{await memory_id(w, FACTS[0])}")
        await w.wait_until_idle()
        await w.next_day()
        assert removed["content"] not in await contents(w, layer)
        assert set(FACTS[1:]) <= await memory_contents(w)


@WITH_AND_WITHOUT_MODEL
@pytest.mark.parametrize("layer", ["questions", "episodes"])
async def test_rebuilding_a_session_does_not_restore_removed_records(
    start: StartServer, layer: str, model: bool
) -> None:
    """When something else of the same session is erased."""
    async with world(start, model=model) as w:
        await w.talk("I repaired the bicycle of Klara in the yard",
                     "Let's talk about the regatta in Lisbon later", SECRET)  # fmt: skip
        await w.next_day()
        assert len(await w.records("questions")) == len(await w.records("episodes")) == 1
        (removed,) = await w.records(layer)
        await w.request("DELETE", f"/records/{removed['id']}")
        await w.wait_until_idle()
        await w.request("DELETE", f"/memories?about={WORD}")
        await assert_erased(w, WORD)
        other_layer = {"questions": "episodes", "episodes": "questions"}[layer]
        assert (await w.records(layer), len(await w.records(other_layer))) == ([], 1)


@WITH_AND_WITHOUT_MODEL
@pytest.mark.parametrize("raised_again", [False, True], ids=["settled", "asked-again"])
async def test_erasing_a_session_restores_the_state_of_open_questions(
    start: StartServer, raised_again: bool, model: bool
) -> None:
    """As if it had neither settled the question nor raised it again."""

    def settle(chat: Chat) -> str:
        answer = json.loads(background_answer(chat))
        if "xylophone is found" in chat["messages"][1]["content"]:
            answer["settled"] = [1]
        return json.dumps(answer)

    async with world(start, model=model) as w:
        if w.model is not None:
            w.model.script.background = settle
        await w.talk("Let's talk about the broken xylophone of Zarco later")
        await w.next_day()
        (before,) = await w.records("questions")
        message = ("Let's talk about the broken xylophone of Zarco later today" if raised_again
                else "The broken xylophone is found, that is settled, Zarco has it")  # fmt: skip
        client = await w.talk(message)
        await client.close()
        await w.next_day()
        (changed,) = await w.records("questions")
        assert changed["details"] != before["details"]
        newest = (await w.request("GET", "/sessions"))["sessions"][0]
        await w.request("DELETE", f"/memories?session={newest['id']}")
        await w.wait_until_idle()
        (restored,) = await w.records("questions")
        assert (restored["content"], restored["details"]) == (before["content"], before["details"])


async def test_a_new_value_is_noted_after_another_was_removed(
    start: StartServer,
) -> None:
    """Only the removed value is not noted again."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto")
        removed = await record_with(w, "profile", "Porto")
        await w.request("DELETE", f"/records/{removed['id']}")
        await w.talk("I moved to Lisbon")
        stated = str(await contents(w, "profile"))
        assert "Lisbon" in stated
        assert "Porto" not in stated


@WITH_AND_WITHOUT_MODEL
async def test_the_recap_is_that_of_the_last_session_that_remains(
    start: StartServer, model: bool
) -> None:
    """Rebuilding an older session does not change it; erasing the last restores the previous."""
    async with world(start, model=model) as w:
        await w.talk("I planted tulips in the garden", "I painted the fence in blue")
        await w.next_day()
        await w.talk("I baked a cake for the wedding")
        await w.next_day()
        await w.talk("I repaired the old bicycle")
        await w.next_day()
        await w.request(
            "DELETE", f"/memories/{await memory_id(w, 'I planted tulips in the garden')}"
        )
        await w.wait_until_idle()
        (opening,) = await w.records("opening")
        assert "bicycle" in opening["content"]
        assert "fence" in str(await w.records("episodes"))
        newest = (await w.request("GET", "/sessions"))["sessions"][0]
        await w.request("DELETE", f"/memories?session={newest['id']}")
        await assert_erased(w, "bicycle")
        (opening,) = await w.records("opening")
        assert "cake" in opening["content"]


async def test_a_statement_repeated_in_another_session_stays_remembered(start: StartServer) -> None:
    """As that session's, stated once."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto", "My favourite colour is green")
        await w.next_day()
        await w.talk("I live in Porto")
        await w.next_day()
        oldest = (await w.request("GET", "/sessions"))["sessions"][-1]
        await w.request("DELETE", f"/memories?session={oldest['id']}")
        await assert_erased(w, "green")
        assert await memory_contents(w) == {"I live in Porto"}
        (memory,) = (await w.memories()).values()
        assert memory["times_said"] == 1
        assert "Porto" in str(await contents(w, "profile"))


async def test_a_memory_stays_superseded_while_a_newer_one_contradicts_it(
    start: StartServer,
) -> None:
    """Of three homes, erasing the second does not reinstate the first, but correcting the third."""
    async with world(start, model=False) as w:
        await w.talk("I live in Porto")
        await w.talk("I moved to Lisbon")
        await w.talk("I moved to Faro")
        await w.request("DELETE", f"/memories/{await memory_id(w, 'I moved to Lisbon')}")
        await assert_erased(w, "lisbon")
        memories = await w.memories()
        assert memories["I live in Porto"]["superseded_by"] == memories["I moved to Faro"]["id"]
        correction = {"content": "I like Faro"}
        await w.request("PATCH", f"/memories/{memories['I moved to Faro']['id']}", correction)
        await w.wait_until_idle()
        memories = await w.memories()
        assert memories["I live in Porto"]["superseded_by"] is None


async def test_erasure_removes_single_lines_of_manually_edited_core_memory(
    start: StartServer,
) -> None:
    """The other lines stay, also in earlier revisions."""
    async with world(start, model=False) as w:
        await w.talk("My dog is called Scout")
        first = {"layer": "hot", "content": f"She waters the roses at four\n{SECRET}"}
        record_id = (await w.request("POST", "/records", first))["id"]
        second = {"content": f"She waters the roses at five\n{SECRET}\nThe gate is green"}
        await w.request("PATCH", f"/records/{record_id}", second)
        await w.wait_until_idle()
        receipt = await w.request("DELETE", "/memories?about=xylophone")
        assert receipt["shortened"] == 1
        await assert_erased(w, WORD)
        hot = str(await w.records("hot"))
        assert "roses at five" in hot
        assert "The gate is green" in hot
        (record,) = await w.records("hot")
        revisions = await w.request("GET", f"/records/{record['id']}/revisions")
        assert "roses at four" in str(revisions)


@pytest.mark.parametrize("scope", ["everything", "session"])
async def test_a_reply_stored_during_a_long_erasure_is_erased_too(
    start: StartServer, scope: str
) -> None:
    """It may be based on what is not erased yet; a message of the user meanwhile stays."""
    async with world(start, model=False) as w:
        await w.talk("The gate code is 4711")
        owner = owner_of(w.server.app.core)
        await owner.execute(_ADD_TURNS, datetime(2026, 5, 2, 15, tzinfo=UTC), 1200)
        (session,) = (await w.request("GET", "/sessions"))["sessions"]
        path = "" if scope == "everything" else f"?session={session['id']}"

        async def wait_for_lock_waiters(count: int) -> None:
            async def enough_wait() -> bool:
                return await owner.waiting() >= count

            await eventually_async(enough_wait)

        async with owner.acquire() as first, owner.acquire() as between:
            blocking, storing = first.transaction(), between.transaction()
            await blocking.start()
            await first.execute(_LOCK_RELATIONSHIP, w.relationship)
            erasure = asyncio.create_task(w.request("DELETE", f"/memories{path}"))
            await wait_for_lock_waiters(1)
            await storing.start()
            lock = asyncio.create_task(between.execute(_LOCK_RELATIONSHIP, w.relationship))
            await wait_for_lock_waiters(2)
            await blocking.rollback()
            await lock
            assert not erasure.done()
            for speaker in ("user", "companion"):
                await between.execute(_ADD_TURN, speaker, f"It was 4711, said the {speaker}")
            await storing.commit()
            await erasure
        remaining = await owner.fetch("SELECT content FROM turns WHERE content <> ''")
        assert [turn["content"] for turn in remaining] == ["It was 4711, said the user"]


_LOCK_RELATIONSHIP = "SELECT FROM relationships WHERE id = $1 FOR UPDATE"
_ADD_TURN = """
INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, content,
    created_at)
SELECT relationship_id, id, user_id, $1, CASE $1 WHEN 'user' THEN 'later' END, 'completed', $2,
    now()
FROM (
    SELECT session.relationship_id, session.id, relationship.user_id FROM sessions AS session
    JOIN relationships AS relationship ON relationship.id = session.relationship_id
    LIMIT 1
) AS open_session
"""


async def test_records_pinned_in_chat_are_erased_with_their_session(start: StartServer) -> None:
    """Records written over HTTP meanwhile stay."""
    async with world(start, model=False) as w:
        await w.talk("Save this: the gate code is heron")
        vault = {"layer": "vault", "content": "The key is below the mat"}
        await w.request("POST", "/records", vault)
        owner = owner_of(w.server.app.core)
        await owner.execute(_ADD_TURNS, datetime(2026, 5, 2, 15, tzinfo=UTC), 30)
        (session,) = (await w.request("GET", "/sessions"))["sessions"]
        await w.request("DELETE", f"/memories?session={session['id']}")
        await assert_erased(w, "heron")
        assert await contents(w, "vault") == {"The key is below the mat"}


_ADD_TURNS = """
INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, content,
    created_at)
SELECT relationship_id, session_id, user_id, 'user', 'many-' || number, 'completed',
    'The house is near the river ' || number, $1
FROM (SELECT * FROM turns ORDER BY id LIMIT 1) AS first, generate_series(1, $2::integer) AS number
"""


async def test_inferred_profile_entries_are_recomputed_after_erasure(start: StartServer) -> None:
    """From the remaining messages."""
    async with world(start, model=False) as w:
        for number in range(10):
            await w.talk(f"I painted windmill {number}{', and again' * 60}", "I swim a lot")
            await w.next_day()
        await w.clock.leap(7 * 24 * 3600)
        await w.talk("I swim a lot")
        await w.next_day()
        (inferred,) = await w.records("profile", "answers")
        assert inferred["content"] == "prefers detailed answers"
        await w.request("DELETE", "/memories?about=windmill")
        await assert_erased(w, "windmill")
        (inferred,) = await w.records("profile", "answers")
        assert inferred["content"] == "prefers short answers"


@pytest.mark.parametrize("word", ["questions", "status", "conclusions", "event"])
async def test_only_content_counts_as_a_mention(start: StartServer, word: str) -> None:
    """Not the names of fields in which records are stored."""
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
        await w.wait_until_idle()
        assert [await contents(w, layer) for layer in layers] == before


async def test_notes_are_rebuilt_after_the_transcript_expired(start: StartServer) -> None:
    """From the memories."""
    async with world(start, model=True, retention_days={"transcript": 3}) as w:
        assert w.model is not None
        w.model.script.background = notes_repeating_notes
        for text in (SECRET, *FACTS):
            await w.talk(text)
        for _ in range(5):
            await w.next_day()
        owner = owner_of(w.server.app.core)
        assert await owner.fetchval("SELECT count(*) FROM turns WHERE content <> ''") == 0
        receipt = await w.request("DELETE", f"/memories/{await memory_id(w, SECRET)}")
        assert receipt["remade"]["scratchpad"] == len(FACTS)
        await assert_erased(w, WORD, "HEIRLOOM")
        assert await contents(w, "scratchpad") == {f"plain: {fact}" for fact in FACTS}


async def test_episodes_are_rebuilt_with_repeated_statements_after_the_transcript_expired(
    start: StartServer,
) -> None:
    """Though the memory of a repeated statement belongs to the session that stated it first."""
    async with world(start, model=True, retention_days={"transcript": 3}) as w:
        assert w.model is not None
        w.model.script.background = verbatim_background
        client = await w.talk("I live in Porto")
        await client.close()
        await w.next_day()
        client = await w.talk("I live in Porto", SECRET, "My dog is called Scout")
        await client.close()
        for _ in range(5):
            await w.next_day()
        await w.request("DELETE", f"/memories/{await memory_id(w, SECRET)}")
        await assert_erased(w, WORD)
        assert "I live in Porto / My dog is called Scout" in await contents(w, "episodes")


async def test_expiry_of_a_note_keeps_notes_derived_from_it(start: StartServer) -> None:
    """Erasure still finds them."""
    async with world(start, model=True, retention_days={"scratchpad": 4}) as w:
        assert w.model is not None
        w.model.script.background = notes_repeating_notes
        await w.talk(SECRET)
        for _ in range(3):
            await w.next_day()
        await w.talk("I live in Porto")
        for _ in range(3):
            await w.next_day()
        assert await contents(w, "scratchpad") == {"HEIRLOOM: I live in Porto"}
        await w.request("DELETE", f"/memories/{await memory_id(w, SECRET)}")
        await assert_erased(w, WORD, "HEIRLOOM")
        assert await contents(w, "scratchpad") == {"plain: I live in Porto"}


async def test_retention_reaches_inactive_relationships(start: StartServer) -> None:
    """Also if it is set for a single relationship."""
    async with world(start, model=False) as w:
        await w.talk("ok, grey, ok")
        await w.next_day()
        settings = {"settings": {"retention_days": {"transcript": 3}}}
        await w.request("PATCH", "/config", settings)
        await w.wait_until_idle()
        owner = owner_of(w.server.app.core)
        await owner.execute("UPDATE relationships SET due_at = NULL, woken_at = '2026-04-01'")
        for _ in range(5):
            await w.next_day()
        remaining = await owner.fetch("SELECT content FROM turns WHERE content <> ''")
        assert remaining == []


async def test_the_users_name_is_removed_with_the_last_memory(start: StartServer) -> None:
    """Once everything is erased and no session is open."""
    async with world(start, model=False) as w:
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Zenobia")
        w.relationship = int(opened["relationship_id"])
        await client.send("I live in Porto")
        await client.expect_all("response.done", "memory.stored")
        await client.close()
        await w.request("DELETE", "/memories")
        await w.wait_until_idle()
        await w.next_day()
        assert "zenobia" not in await stored_text(w.server)
        assert not await owner_of(w.server.app.core).fetchval("SELECT count(*) FROM sessions")


async def test_a_reply_that_shares_only_a_common_word_stays(start: StartServer) -> None:
    """Though the word occurs nowhere else."""

    def reply(chat: Chat) -> list[str]:
        last = chat["messages"][-1]["content"].rpartition("\n\n")[2]
        return ["I hope that you sleep well tonight."] if "tired" in last else ["I see."]

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.reply = reply
        await w.talk("I really hope that my exam in chemistry goes fine", "I am tired now")
        text = "I really hope that my exam in chemistry goes fine"
        await w.request("DELETE", f"/memories/{await memory_id(w, text)}")
        await assert_erased(w, "chemistry")
        remaining = [turn["text"] for turn in (await w.request("GET", "/export"))["turns"]]
        assert remaining == ["I am tired now", "I hope that you sleep well tonight."]


async def test_imported_memories_can_be_superseded(
    start: StartServer,
) -> None:
    async with world(start, model=False) as w:
        await w.server.app.core.stores.companions.put(
            CompanionFile("mara", "Mara", "You are Mara.")
        )
        await w.talk("I live in Porto")
        exported = await w.request("GET", "/export")
        w.relationship = int((await w.import_file(exported, "mara")).json()["id"])
        client = await w.server.connect()
        await client.open_session("mara", user_id="ana", name="Ana")
        await client.send("I moved to Lisbon")
        await client.expect_all("response.done", "memory.stored")
        await w.wait_until_idle()
        memories = await w.memories()
        assert memories["I live in Porto"]["superseded_by"] == memories["I moved to Lisbon"]["id"]


@WITH_AND_WITHOUT_MODEL
async def test_the_receipt_counts_erased_and_rebuilt_records_by_layer(
    start: StartServer, model: bool
) -> None:
    async with world(start, model=model) as w:
        await w.talk(SECRET, *FACTS)
        await w.next_day()
        receipt = await w.request("DELETE", f"/memories/{await memory_id(w, SECRET)}")
        assert receipt["turns"] == len(receipt["memories"]) + 1  # the reply to it
        assert receipt["layers"]["episodes"] == receipt["remade"]["episodes"] == 1
        assert receipt["remade"]["opening"] == receipt["layers"]["opening"] == 1
        assert receipt["remade"].get("hot") == receipt["layers"]["hot"]
