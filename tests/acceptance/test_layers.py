"""Every layer of memory, over a real socket, with a scripted model and without any."""

import asyncio
import json
import re
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import (
    Behaviour,
    CompanionFile,
    CompanionSettings,
    ProfileRules,
    ProfileSlot,
    Prompts,
    ScratchpadRules,
)
from foremind.testing.background_answers import curate
from foremind.testing.model_server import Chat
from tests.acceptance.layers import A_DAY, World, world
from tests.conftest import PATIENCE, StartServer, eventually, everything_heard, owner_of

WITH_AND_WITHOUT = pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])


@WITH_AND_WITHOUT
async def test_the_working_window_outlives_a_connection_and_ends_with_the_session(
    start: StartServer, model: bool
) -> None:
    """For 24 hours after the last word; then the session is closed."""
    async with world(start, model=model) as w:
        client = await w.talk("The lantern is blue")
        await client.close()
        await w.clock.leap(23 * 3600)
        await w.talk("The rope is red")
        assert "The lantern is blue" in str((await w.context("And now?"))["messages"])
        await w.next_day()
        shown = await w.context("And now?")
        assert shown["layers"]["working"]["turns"] == 0
        sessions = (await w.request("GET", "/sessions"))["sessions"]
        assert [(session["turns"], session["closed_at"] is not None) for session in sessions] == [
            (4, True)
        ]


@WITH_AND_WITHOUT
async def test_a_long_talk_is_summarised(start: StartServer, model: bool) -> None:
    """From 20 messages on the oldest become lines; the newest ten stay as they were said."""
    async with world(start, model=model) as w:
        await w.talk(*(f"I promise to bring {each} to the feast" for each in _THINGS))
        applied = next(event for event in w.events if event["type"] == "summary.applied")
        shown = await w.context("And now?")
        assert applied["made_by"] == ("model" if model else "rules")
        assert 1 <= applied["lines"] <= 5
        assert 10 <= shown["layers"]["working"]["turns"] <= 20
        assert "feast" in await w.lines("summary")
        assert shown["layers"]["summary"]["made_by"] == [applied["made_by"]]
        assert f"bring {_THINGS[-1]}" in str(shown["messages"])


async def test_a_few_long_messages_are_summarised(start: StartServer) -> None:
    """By their tokens, however few they are; half of the limit stays, in one request."""
    async with world(start, model=True, summary_tokens=1000, layers_off=["scratchpad"]) as w:
        assert w.model is not None
        w.model.script.background = lambda _: json.dumps({"lines": ["A feast was planned."]})
        await w.talk(*(f"I promise to bring {each} to the feast. " * 20 for each in _THINGS[:4]))
        asked = [each for each in w.model.script.asked if "Former summary" in str(each)]
        assert len(asked) == 1
        taken = (await w.records("summary"))[0]["details"]["messages"]
        assert taken >= 5
        assert (await w.context("And now?"))["layers"]["working"]["turns"] == 8 - taken


async def test_a_summary_that_fails_leaves_the_context_as_it_was(start: StartServer) -> None:
    """And the next trigger tries again."""
    async with world(start, model=True) as w:
        assert w.model is not None
        good, w.model.script.background = w.model.script.background, lambda _: "no JSON"
        client = await w.server.session()
        for thing in _THINGS:
            await client.send(f"I promise to bring {thing}")
            await client.expect_all("response.done", "memory.stored")
        await eventually(lambda: len(w.model.script.asked) > 1)  # type: ignore[union-attr]
        w.relationship = 1
        assert (await w.context("And now?"))["layers"]["working"]["turns"] == 2 * len(_THINGS)
        w.model.script.background = good
        await w.clock.advance(61)
        await w.settled()
        assert await w.records("summary")


@WITH_AND_WITHOUT
async def test_a_new_session_begins_where_the_last_was_left(
    start: StartServer, model: bool
) -> None:
    """For this user with this companion only, and only until something is said."""
    async with world(start, model=model) as w:
        await w.talk("We decided to sail to Madeira in June with the old boat")
        await w.next_day()
        assert "Madeira" in await w.lines("opening")
        await w.talk("Hello!", user="bob")
        mine, w.relationship = w.relationship, 2
        answer = await w.answer("GET", "/context?draft=Hi")
        assert answer.status_code == 404
        w.relationship = mine
        await w.talk("Good morning")
        assert await w.lines("opening") == ""


@WITH_AND_WITHOUT
async def test_an_episode_is_found_by_a_name(start: StartServer, model: bool) -> None:
    """However differently it is asked."""
    async with world(start, model=model) as w:
        await w.talk(
            "Yesterday I met Beatriz at the harbour and she lent me her telescope",
            "We decided to watch the comet with Beatriz on Friday",
        )
        await w.next_day()
        (episode,) = await w.records("episodes")
        assert "beatriz" in episode["refs"]
        assert "comet" in await w.lines("episodes", "Have you news of Beatriz?")
        assert await w.lines("episodes", "I like cheese with bread") == ""


@WITH_AND_WITHOUT
async def test_what_comes_up_in_three_sessions_becomes_a_topic(
    start: StartServer, model: bool
) -> None:
    """One paragraph, rewritten when there is news."""
    async with world(start, model=model) as w:
        for number, text in enumerate(
            ("I began to build the lighthouse. My lighthouse needs a lamp",
             "I found a lamp for my lighthouse. The lighthouse is bright now",
             "I painted the lighthouse red. Everybody admires the lighthouse",
             "I sold my lighthouse to a painter. The lighthouse is hers now"), 1,
        ):  # fmt: skip
            await w.talk(text)
            await w.next_day()
            topics = await w.records("topics", "lighth")
            assert bool(topics) == (number >= 3)
        (topic,) = topics
        assert topic["details"]["sessions"] == 4
        assert topic["revision"] == 2
        assert "lighthouse" in await w.lines("topics", "How is the lighthouse doing?")


async def test_a_topic_is_written_from_all_that_is_known_of_it(start: StartServer) -> None:
    """Days, conclusions, notes and the former paragraph; the model is shown the names so far."""
    asked: list[str] = []
    names = iter(["violin", "violin lessons", "violin", "the violin strings"])

    def answer(chat: dict[str, Any]) -> str:
        given = chat["messages"][-1]["content"]
        if "Topics so far" in given:
            asked.append(given)
            told = {
                "topic": next(names),
                "summary": "They spoke.",
                "conclusions": ["A string broke"],
            }
            return json.dumps({"episodes": [told], "left_at": "They parted."})
        if given.startswith("Topic:"):
            asked.append(given)
            return json.dumps({"text": f"Paragraph {given.count('New:')}, {len(asked)} asked."})
        return curate(chat)

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = answer
        for text in ("I hold my violin", "I had a lesson", "A string broke", "I bought strings"):
            await w.talk(text)
            await w.next_day()
        (topic,) = await w.records("topics")
        assert topic["title"] == "violin"
        assert topic["details"]["sessions"] == 4
        first, second = (each for each in asked if each.startswith("Topic:"))
        assert 'Former paragraph: ""' in first
        assert "Concluded: A string broke" in first
        assert re.search(r"- \d+ [A-Z][a-z]+ 20\d\d: ", first)
        assert "Paragraph 1" in second
        assert second.count("They spoke.") == 1
        shown = [each.splitlines()[0] for each in asked if "Topics so far" in each]
        assert shown[0] == "Topics so far: (none)"
        assert shown[-1] == 'Topics so far: "violin", "violin lessons"'


@WITH_AND_WITHOUT
async def test_the_profile_holds_what_was_stated_and_what_was_inferred(
    start: StartServer, model: bool
) -> None:
    """Stated at once, inferred once a week; in every prompt."""
    async with world(start, model=model) as w:
        for text in ("My favourite colour is green", "I planted a fig tree", "It rained a lot"):
            await w.talk(text)
            assert "green" in await w.lines("profile")
            await w.next_day()
        await w.clock.leap(6 * 24 * 3600)
        await w.talk("The fig tree grows")
        await w.next_day()
        kinds = {record["title"]: record["kind"] for record in await w.records("profile")}
        assert kinds["favourite colour"] == "stated"
        assert kinds["session length"] == "inferred"
        assert "minutes" in await w.lines("profile")


@WITH_AND_WITHOUT
async def test_the_scratchpad_is_kept_after_every_turn(start: StartServer, model: bool) -> None:
    """And can be read and written by its user."""
    async with world(start, model=model) as w:
        await w.talk("My goal is to run a marathon")
        (entry,) = await w.records("scratchpad")
        assert "marathon" in entry["content"]
        assert entry["made_by"] == ("model" if model else "rules")
        assert "marathon" in await w.lines("scratchpad")
        change = {"content": "Wants to run two marathons", "revision": entry["revision"]}
        await w.request("PATCH", f"/records/{entry['id']}", change)
        await w.settled()
        assert "two marathons" in await w.lines("scratchpad")
        assert (await w.answer("PATCH", f"/records/{entry['id']}", change)).status_code == 409


async def test_invalid_operations_are_rejected_one_by_one(start: StartServer) -> None:
    """A wrong one spoils no other, and is counted."""
    operations = [
        {"op": "ADD", "kind": "mood", "entry": "no such kind"},
        {"op": "UPDATE", "id": 999, "entry": "no such entry"},
        {"op": "JUMP"},
        {"op": "ADD", "kind": "pet", "entry": "Has a goat"},
    ]
    rules = ScratchpadRules("Note only pets.", {"pet": "animals"})
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = lambda _: json.dumps({"operations": operations})
        settings = CompanionSettings(scratchpad=rules)
        await w.server.app.core.companions.put(CompanionFile("wren", "Wren", "p", "", settings))
        await w.talk("I have a goat")
        assert [record["content"] for record in await w.records("scratchpad")] == ["Has a goat"]
        assert "Note only pets." in w.model.script.asked[-1]["messages"][0]["content"]
        metrics = w.server.app.core.metrics
        assert metrics.mended.labels("notes", "dropped")._value.get() == 1  # no such operation
        assert metrics.dropped.labels("invalid_operation")._value.get() == 2


@WITH_AND_WITHOUT
async def test_what_was_left_open_comes_back_when_it_is_touched(
    start: StartServer, model: bool
) -> None:
    """With the wish to come back to it, until somebody settles it."""
    async with world(start, model=model) as w:
        await w.talk("Let's talk about the broken compass of Zarco later")
        await w.next_day()
        line = await w.lines("questions", "I dreamt of the broken compass of Zarco")
        assert "left it open" in line
        assert "compass" in line
        (question,) = await w.records("questions")
        await w.request("PATCH", f"/records/{question['id']}", {"status": "settled"})
        await w.settled()
        assert await w.lines("questions", "I dreamt of the broken compass of Zarco") == ""


@WITH_AND_WITHOUT
async def test_the_hot_context_keeps_what_somebody_wrote_into_it(
    start: StartServer, model: bool
) -> None:
    """A curation takes a change by hand in; both are in the history."""
    async with world(start, model=model) as w:
        await w.talk("My favourite colour is green")
        await w.next_day()
        (hot,) = await w.records("hot")
        assert hot["content"]
        change = {"content": "Ana is in mourning.", "revision": hot["revision"]}
        await w.request("PATCH", f"/records/{hot['id']}", change)
        await w.settled()
        await w.talk("I planted a fig tree")
        await w.next_day()
        (hot,) = await w.records("hot")
        assert "mourning" in hot["content"]
        assert hot["made_by"] == ("model" if model else "rules")
        assert "mourning" in await w.lines("hot")
        earlier = (await w.request("GET", f"/records/{hot['id']}/revisions"))["revisions"]
        assert "Ana is in mourning." in [each["content"] for each in earlier]
        first = {"revision": earlier[0]["revision"]}
        await w.request("POST", f"/records/{hot['id']}/restore", first)
        (restored,) = await w.records("hot")
        assert restored["content"] == earlier[0]["content"]


async def test_a_careless_model_takes_nothing_out_of_the_hot_context(start: StartServer) -> None:
    """That somebody wrote into it, however often it is written anew."""
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = lambda chat: (
            curate(chat)
            if '{"text"' not in chat["messages"][0]["content"]
            else '{"text": "All is well with them."}'
        )
        await w.talk("My favourite colour is green")
        await w.request("POST", "/records", {"layer": "hot", "content": "Call her captain."})
        for _ in range(2):
            await w.next_day()
            await w.talk("I planted a fig tree")
        (hot,) = await w.records("hot")
        assert hot["content"] == "Call her captain.\nAll is well with them."


@WITH_AND_WITHOUT
async def test_what_was_saved_on_purpose_is_found_when_it_is_asked_for(
    start: StartServer, model: bool
) -> None:
    """By the user in so many words, or by the game."""
    async with world(start, model=model) as w:
        await w.talk("Save this for me: the gate code of the shed is 4711")
        assert "4711" in await w.lines("vault", "Do you remember the gate code of the shed?")
        assert await w.lines("vault", "The gate of the shed is green") == ""
        game = {"layer": "vault", "content": "Ana won the silver cup of Funchal", "by": "developer"}
        await w.request("POST", "/records", game)
        await w.settled()
        assert "silver cup" in await w.lines("vault", "Remember the silver cup of Funchal?")


async def test_documents_of_a_companion_are_searched_beside_memories(start: StartServer) -> None:
    """Uploaded with progress, found by words and meaning, gone when deleted."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        page = "<script>x()</script><h1>Ferry</h1><p>The night ferry leaves pier nine at ten.</p>"
        url = f"http://127.0.0.1:{w.server.port}/v1/companions/wren/documents"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            sent = await http.post(
                url,
                params={"title": "Timetable", "user": "ana"},
                content=page,
                headers={"content-type": "text/html"},
            )
            assert sent.status_code == 202, sent.text

            async def embedded() -> int:
                listed = (await http.get(url, params={"user": "ana"})).json()["documents"]
                return int(listed[0]["embedded"])

            async with asyncio.timeout(PATIENCE):
                while await embedded() < 1:
                    await asyncio.sleep(0.02)
            await everything_heard(w.server)
            line = await w.lines("library", "When does the night ferry leave?")
            assert "pier nine" in line
            assert "x()" not in line
            wrong = await http.post(url, params={"title": "x", "user": "ana"}, content=b"\xff")
            assert wrong.json()["error"]["param"] == "content-type"
            document = sent.json()["id"]
            await http.delete(f"{url}/{document}", params={"user": "ana"})
        await everything_heard(w.server)
        assert await w.lines("library", "When does the night ferry leave?") == ""


async def test_a_deleted_document_is_in_no_context_that_was_prepared(start: StartServer) -> None:
    """Not even for the words that it was prepared for."""
    async with world(start, model=True) as w:
        assert w.model is not None
        client = await w.talk("Hello")
        url = f"http://127.0.0.1:{w.server.port}/v1/companions/wren/documents"
        asked = "When does the night ferry leave?"
        async with httpx2.AsyncClient(timeout=PATIENCE, params={"user": "ana"}) as http:
            sent = await http.post(
                url,
                params={"title": "Timetable"},
                content="The night ferry leaves pier nine at ten.",
                headers={"content-type": "text/plain"},
            )
            await everything_heard(w.server)
            assert "pier nine" in await w.lines("library", asked)
            await client.draft(asked)
            await client.send_raw({"type": "sync", "event_id": "sync"})
            await client.expect("error")  # the draft has come
            await w.clock.advance(0.5)
            while (await client.expect("context.ready"))["trigger"] != "pause":
                pass
            assert (await http.delete(f"{url}/{sent.json()['id']}")).status_code == 200
        await everything_heard(w.server)
        await client.send(asked)
        assert (await client.expect("message.accepted"))["context"] != "hit"
        await client.expect("response.done")
        assert "pier nine" not in str(w.model.script.spoken[-1])


@WITH_AND_WITHOUT
async def test_behaviours_enter_the_prompt_or_run_after_the_reply(
    start: StartServer, model: bool
) -> None:
    """Under their conditions; the client is told what came of those afterwards."""
    behaviours = (
        Behaviour("pirate", "Answer like a pirate.", says=("ahoy",)),
        Behaviour("diary", "Write a diary line.", says=("ahoy",), after=True),
    )
    async with world(start, model=model) as w:
        settings = CompanionSettings(behaviours=behaviours)
        await w.server.app.core.companions.put(CompanionFile("wren", "Wren", "p", "", settings))
        client = await w.talk()
        if w.model is not None:
            w.model.script.background = lambda _: "A fine day."
        await client.send("Ahoy, Wren!")
        done = await client.expect("behaviour.done")
        assert (done["name"], done["text"]) == ("diary", "A fine day." if model else "")
        assert "Answer like a pirate." in str((await w.context("Ahoy again"))["messages"])
        assert "pirate" not in str((await w.context("Good day"))["messages"])


async def test_topics_of_others_are_counted_only_where_all_agree(start: StartServer) -> None:
    """The companion's owner and every user counted; from three on, and nothing but a number."""
    async with world(start, model=False) as w:
        companions = w.server.app.core.companions
        settings = CompanionSettings(shares_counts=True)
        await companions.put(CompanionFile("wren", "Wren", "p", "", settings))
        await w.talk("Hello")
        record = {"layer": "topics", "title": "lighthouses", "content": "Ana builds one."}
        await w.request("POST", "/records", record)
        pool = owner_of(w.server.app.core)
        for name in ("bob", "cid", "dot"):
            await w.talk("Hello", user=name)
        await pool.execute(
            "INSERT INTO records (relationship_id, layer, title, content, made_by, created_at, "
            "updated_at) SELECT id, 'topics', 'Lighthouses', 'x', 'rules', now(), now() "
            "FROM relationships WHERE id <> $1",
            w.relationship,
        )
        await pool.execute("UPDATE relationships SET shares_counts = true WHERE id <> $1", 1)
        draft = "Tell me about lighthouses and those who build lighthouses"
        assert "others" not in await w.lines("topics", draft)
        await w.request("PATCH", "/config", {"shares_counts": True})
        await w.settled()
        assert "3 others spoke with you about it" in await w.lines("topics", draft)


@WITH_AND_WITHOUT
async def test_what_the_model_is_given_is_what_the_context_view_shows(
    start: StartServer, model: bool
) -> None:
    """Word for word, with all layers alive, within their share."""
    async with world(start, model=model) as w:
        await _a_life(w)
        await w.talk("My goal is to learn Greek")  # news since the hot context
        draft = "How is the lighthouse of Beatriz, do you remember?"
        shown = await w.context(draft)
        alive = {name for name, each in shown["layers"].items() if each["lines"]}
        assert alive >= {"profile", "hot", "scratchpad", "topics", "episodes", "memories"}
        spent = sum(e["tokens"] for name, e in shown["layers"].items() if name != "working")
        assert spent <= shown["budget"]
        assert shown["left_out"] == []
        if w.model is not None:
            await w.talk(draft)
            assert w.model.script.spoken[-1]["messages"] == shown["messages"]


async def test_a_layer_that_hangs_is_left_out(start: StartServer) -> None:
    """The others are there, and it is said which is missing."""
    async with world(start, model=False, layers_deadline_ms=3000, index_bytes=0) as w:
        await _a_life(w)
        pool = owner_of(w.server.app.core)
        async with pool.acquire() as raw, raw.transaction():
            await raw.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
            shown = await w.context("How is the lighthouse of Beatriz, do you remember?")
        assert shown["left_out"] == ["memories"]
        assert shown["layers"]["hot"]["tokens"] > 0


@pytest.mark.parametrize("layer", ["hot", "topics", "memories", "scratchpad"])
async def test_a_layer_can_be_switched_off_for_one_relationship(
    start: StartServer, layer: str
) -> None:
    """And it is shown where that comes from."""
    async with world(start, model=False) as w:
        await _a_life(w)
        await w.request("PATCH", "/config", {"settings": {"layers_off": [layer]}})
        shown = await w.context("How is the lighthouse of Beatriz, do you remember?")
        assert shown["layers"][layer]["tokens"] == 0
        assert shown["layers"][layer]["on"] is False
        config = await w.request("GET", "/config")
        assert config["layers_off"] == {"value": [layer], "from": "relationship"}
        wrong = await w.answer("PATCH", "/config", {"settings": {"layers_off": ["soul"]}})
        assert wrong.json()["error"]["param"] == "settings.layers_off"


_THINGS = ("bread", "wine", "olives", "cheese", "figs", "honey", "nuts", "salt", "oil", "grapes",
           "lemons", "thyme")  # fmt: skip


async def test_a_turn_may_have_settings_of_its_own(start: StartServer) -> None:
    """They hold for that turn only, and none that are the operator's."""
    async with world(start, model=True) as w:
        assert w.model is not None
        client = await w.talk("I promise to remember the red door")
        off = {"layers_off": ["memories", "scratchpad", "working"]}
        question = {"type": "message.send", "text": "What about the door?"}
        await client.send_raw(question | {"id": "q1", "settings": off})
        await client.expect("response.done")
        assert "red door" not in str(w.model.script.spoken[-1]["messages"])
        await client.send_raw(question | {"id": "q2"})
        await client.expect("response.done")
        assert "red door" in str(w.model.script.spoken[-1]["messages"])
        await client.send_raw(question | {"id": "q3", "settings": {"llm_url": "http://evil"}})
        error = (await client.expect("error"))["error"]
        assert error["param"] == "settings.llm_url"


async def test_settings_of_a_relationship_hold_in_a_session_that_is_open(
    start: StartServer,
) -> None:
    """From the next message on."""
    async with world(start, model=True) as w:
        assert w.model is not None
        client = await w.talk("I promise to remember the red door")
        off = {"layers_off": ["memories", "scratchpad", "working"]}
        await w.request("PATCH", "/config", {"settings": off})
        await w.settled()
        await client.send("What about the door?")
        await client.expect("response.done")
        assert "red door" not in str(w.model.script.spoken[-1]["messages"])


async def _a_life(w: World) -> None:
    """Three days of talk that fill every layer."""
    for text in (
        "My favourite colour is green. I began to build the lighthouse with Beatriz",
        "I decided to paint the lighthouse of Beatriz red. My goal is to finish the lighthouse",
        "The lighthouse of Beatriz has a lamp now. Let's talk about the lamp later",
    ):
        await w.talk(text)
        await w.clock.leap(A_DAY)
        await w.settled()


async def test_the_model_is_asked_once_a_turn_in_the_background(start: StartServer) -> None:
    """Episodes, topics and the state come once a session."""
    async with world(start, model=True) as w:
        assert w.model is not None
        await w.talk("I planted a fig tree", "It grows", "It bears figs")
        assert len(w.model.script.asked) <= 3
        await w.next_day()
        assert len(w.model.script.asked) <= 6


async def test_what_is_said_while_a_model_is_slow_is_curated_after_that_and_once(
    start: StartServer,
) -> None:
    """However long it takes: a second worker beside the first would note everything twice."""
    async with world(start, model=True) as w:
        assert w.model is not None
        script = w.model.script
        held = script.hold_before = asyncio.Event()
        held.set()

        def reply(_: object) -> list[str]:
            held.clear()  # what follows in the background hangs
            return ["Yes."]

        script.reply = reply
        client = await w.server.session()
        await client.send("Let's talk about the broken compass of Zarco later")
        await client.expect_all("response.done", "memory.stored")
        await eventually(lambda: len(script.asked) == 1)
        owner = owner_of(w.server.app.core)
        for _ in range(4):  # a claim lasts for 30 seconds
            await owner.execute("UPDATE relationships SET due_at = $1", w.clock.now())
            await w.clock.leap(600)
            for _ in range(20):
                await w.clock.advance(1)
                await asyncio.sleep(0.01)
        assert len(script.asked) == 1
        w.relationship = 1
        held.set()
        await w.next_day()
        (question,) = await w.records("questions")
        assert "compass" in question["content"]


async def test_a_companion_says_in_its_own_words_what_a_model_is_to_write(
    start: StartServer,
) -> None:
    """Of summary, episodes, topics and hot context."""
    own = Prompts("Summary as a log.", "Episodes as a log.", "Topics as a log.", "Hot as a log.")
    async with world(start, model=True, summary_messages=12) as w:
        assert w.model is not None
        settings = CompanionSettings(prompts=own)
        await w.server.app.core.companions.put(CompanionFile("wren", "Wren", "p", "", settings))
        for number in range(3):
            await w.talk(
                *(f"My lighthouse has lamp {each}" for each in range(5 + 5 * (number == 0)))
            )
            await w.next_day()
        tasks = {each["messages"][0]["content"].partition(".")[0] for each in w.model.script.asked}
        assert tasks >= {f"{each} as a log" for each in ("Summary", "Episodes", "Topics", "Hot")}


_TASTES = [
    "rain", "old maps", "lighthouses", "jazz", "hiking", "chess", "bread", "trains", "opera",
    "crosswords", "tulips", "ferries", "herons", "cinnamon",
]  # fmt: skip


async def test_a_profile_holds_clean_values_and_who_somebody_is_never_falls_out(
    start: StartServer,
) -> None:
    """However much somebody likes; what others say is nothing of it."""
    async with world(start, model=False) as w:
        await w.talk(
            "Call me Sam. I work as a nurse and I live in Porto.",
            "She said I live in a dream",
            "I'm lactose intolerant. Please keep your answers short.",
            *(f"I love {each}" for each in _TASTES),
        )
        entries = {(record["title"], record["content"]) for record in await w.records("profile")}
        assert entries >= {
            ("name", "Sam"), ("job", "nurse"), ("home", "Porto"),
            ("health", "lactose intolerant"), ("manner", "keep your answers short"),
        }  # fmt: skip
        likes = {content for title, content in entries if title == "likes"}
        assert likes == set(_TASTES[-12:])
        lines = (await w.lines("profile")).splitlines()
        assert ["Sam" in lines[0], "Porto" in lines[1], "nurse" in lines[2]] == [True] * 3
        assert "dream" not in str(lines)


async def test_a_home_that_was_set_by_hand_is_the_only_one(start: StartServer) -> None:
    """What is said later stands beside no entry that somebody wrote."""
    async with world(start, model=False) as w:
        await w.talk("My name is Ana")
        mine = {"layer": "profile", "title": "home", "content": "Braga"}
        await w.request("POST", "/records", mine)
        await w.talk("I moved to Porto")
        homes = await w.records("profile", "home")
        assert [(home["content"], home["made_by"]) for home in homes] == [("Braga", "user")]


async def test_a_home_that_is_set_by_hand_takes_the_place_of_what_was_said(
    start: StartServer,
) -> None:
    """Under whatever title; what else was said of oneself stays."""
    async with world(start, model=False) as w:
        await w.talk("My name is Ana", "I live in Lisbon", "I love jazz")
        mine = {"layer": "profile", "title": "city", "content": "Lives in Braga"}
        await w.request("POST", "/records", mine)
        likes = {"layer": "profile", "title": "likes", "content": "chess"}
        await w.request("POST", "/records", likes)
        held = {record["content"] for record in await w.records("profile")}
        assert held == {"Ana", "jazz", "Lives in Braga", "chess"}


async def test_an_entry_that_was_removed_is_not_made_again(start: StartServer) -> None:
    """Another value of the same slot is."""
    async with world(start, model=False) as w:
        await w.talk("I love rain", "I love tea")
        (rain,) = [record for record in await w.records("profile") if record["content"] == "rain"]
        await w.request("DELETE", f"/records/{rain['id']}")
        await w.talk("I love rain, I really do", "I love jazz")
        likes = [record["content"] for record in await w.records("profile")]
        assert sorted(likes) == ["jazz", "tea"]


async def test_with_a_model_the_profile_is_read_by_it(start: StartServer) -> None:
    """In any language, into the companion's own slots too; and forgotten like anything else."""
    answered = [
        {"slot": "home", "value": "Wien"},
        {"slot": "boat", "value": "Jolle Aurora"},
        {"slot": "mood", "value": "good"},
    ]

    def background(chat: Chat) -> str:
        task, given = (each["content"] for each in chat["messages"][:2])
        if '{"entries"' not in task:
            return curate(chat)
        return json.dumps({"entries": answered if "Wien" in given else []})

    rules = ProfileRules(slots={"boat": ProfileSlot("what the user sails")})
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = background
        settings = CompanionSettings(profile=rules)
        await w.server.app.core.companions.put(CompanionFile("wren", "Wren", "p", "", settings))
        await w.talk("My name is Ana", "Ich wohne in Wien und segle eine Jolle namens Aurora")
        assert [record["title"] for record in await w.records("profile")] == ["name"]
        await w.next_day()
        entries = await w.records("profile")
        assert {(entry["title"], entry["content"], entry["made_by"]) for entry in entries} == {
            ("name", "Ana", "rules"), ("home", "Wien", "model"), ("boat", "Jolle Aurora", "model"),
        }  # fmt: skip
        dropped = w.server.app.core.metrics.dropped.labels("invalid_entry")
        assert dropped._value.get() == 1
        await w.request("DELETE", "/memories?about=Wien")
        await w.settled()
        assert [record["content"] for record in await w.records("profile")] == ["Ana"]


async def test_a_relationship_that_talks_little_asks_little_for_its_profile(
    start: StartServer,
) -> None:
    """Once for a session, not once for each message."""
    async with world(start, model=True) as w:
        assert w.model is not None
        await w.talk("The ferry is late", "It rains", "My name is Ana")
        await w.next_day()
        asked = [each for each in w.model.script.asked if '{"entries"' in str(each["messages"])]
        assert len(asked) == 1


@pytest.mark.parametrize("answer", ['{"episodes": []}', '{"left_at": "At the quay."}'])
async def test_what_a_model_leaves_out_of_its_answer_rules_tell(
    start: StartServer, answer: str
) -> None:
    """Each conversation has an episode and an end, however small the model is."""

    def background(chat: Chat) -> str:
        return answer if '{"episodes"' in chat["messages"][0]["content"] else curate(chat)

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = background
        await w.talk("We sail to Madeira in June")
        await w.next_day()
        (episode,) = await w.records("episodes")
        assert (episode["made_by"], "Madeira" in episode["content"]) == ("rules", True)
        (opening,) = await w.records("opening")
        assert opening["content"]
