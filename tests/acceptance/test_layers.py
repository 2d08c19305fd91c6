"""Every layer of memory over a real socket, with a scripted model and without any."""

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.companion_rules import (
    Behaviour,
    ProfileRules,
    ProfileSlot,
    Prompts,
    ScratchpadRules,
    SignificanceRules,
)
from foremind.domain.settings.settings import CompanionSettings
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Chat
from tests.acceptance.world import A_DAY, World, world
from tests.conftest import (
    FIRST_RELATIONSHIP,
    PATIENCE,
    StartServer,
    all_announcements_handled,
    eventually,
    eventually_async,
    owner_of,
)

WITH_AND_WITHOUT_MODEL = pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])


@WITH_AND_WITHOUT_MODEL
async def test_the_working_window_outlives_connections_and_ends_with_the_session(
    start: StartServer, model: bool
) -> None:
    """The session is closed 24 hours after the last message."""
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


@WITH_AND_WITHOUT_MODEL
async def test_a_long_session_is_summarized(start: StartServer, model: bool) -> None:
    """From 20 messages on, the oldest become lines; the newest ten stay verbatim."""
    async with world(start, model=model) as w:
        await w.talk(*(f"I promise to bring {item} to the feast" for item in _ITEMS))
        applied = next(event for event in w.events if event["type"] == "summary.applied")
        shown = await w.context("And now?")
        assert applied["made_by"] == ("model" if model else "rules")
        assert 1 <= applied["lines"] <= 5
        assert 10 <= shown["layers"]["working"]["turns"] <= 20
        assert "feast" in await w.lines("summary")
        assert shown["layers"]["summary"]["made_by"] == [applied["made_by"]]
        assert f"bring {_ITEMS[-1]}" in str(shown["messages"])


@WITH_AND_WITHOUT_MODEL
async def test_what_no_summary_covers_is_in_the_window(start: StartServer, model: bool) -> None:
    """Where the summary is off, or was deleted; then a new one is made of all turns."""
    async with world(start, model=model) as w:
        await w.talk(*(f"I promise to bring {item} to the feast" for item in _ITEMS))
        assert (await w.context("And now?"))["layers"]["working"]["turns"] < 2 * len(_ITEMS)
        for off, turns in ((["summary"], 2 * len(_ITEMS)), ([], 10)):
            await w.request("PATCH", "/config", {"settings": {"layers_off": off}})
            shown = await w.context("And now?")
            assert shown["layers"]["working"]["turns"] >= turns
            assert (f"bring {_ITEMS[0]}" in str(shown["messages"])) or not off
        (summary,) = await w.records("summary")
        await w.request("DELETE", f"/records/{summary['id']}")
        await w.talk("Which item did I name first?")
        (again,) = await w.records("summary")
        covered = again["details"]["messages"]
        working = (await w.context("And now?"))["layers"]["working"]["turns"]
        assert covered + working == 2 * len(_ITEMS) + 2


async def test_a_message_without_a_reply_is_read_as_well(start: StartServer) -> None:
    """Its facts do not wait for the next one that is answered."""
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.refusal_status = lambda chat: 500 if chat["temperature"] > 0 else None
        client = await w.server.session()
        await client.send("I live in Porto")
        await client.expect("response.done")
        w.relationship = FIRST_RELATIONSHIP
        await w.wait_until_idle()
        assert [entry["content"] for entry in await w.records("profile", "home")] == ["Porto"]
        assert "Porto" in str(await w.records("scratchpad"))


async def test_a_message_left_by_a_killed_process_is_read_after_the_lull(
    start: StartServer,
) -> None:
    """With nobody typing: that process stored it, and nothing more."""
    clock = ManualClock()
    core = (await start(clock=clock)).app.core
    mara = await core.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
    turns, said = core.stores.turns, clock.now()
    session = await turns.open_session("ana", "Ana", mara.id, said, lifetime=timedelta(days=1))
    await turns.commit_message(session, "1", "I live in Porto", said)

    async def is_read() -> bool:
        await clock.advance(1.0)
        return bool(
            await owner_of(core).fetchval(
                "SELECT count(DISTINCT layer) = 2 FROM records "
                "WHERE layer IN ('profile', 'scratchpad')"
            )
        )

    await eventually_async(is_read)
    assert 45 <= (clock.now() - said).total_seconds() < 75


async def test_a_reply_made_anew_is_read_for_notes_with_its_message(start: StartServer) -> None:
    """A model is shown both."""
    async with world(start, model=True) as w:
        assert w.model is not None
        client = await w.talk("Where shall we meet?")
        w.model.script.reply = lambda _: ["At", " the", " lighthouse."]
        before = len(w.model.script.background_requests)
        accepted = next(event for event in w.events if event["type"] == "message.accepted")
        await client.regenerate(accepted["id"])
        await client.expect("response.done")
        await w.wait_until_idle()
        read = [
            request["messages"][1]["content"].rpartition("Said:")[2]
            for request in w.model.script.background_requests[before:]
            if '{"operations"' in request["messages"][0]["content"]
        ]
        assert any("Where shall we meet?" in said and "At the lighthouse." in said for said in read)


@WITH_AND_WITHOUT_MODEL
async def test_no_statistics_are_in_a_prompt(start: StartServer, model: bool) -> None:
    """Nor lists of words. After many sessions of short messages, that short answers are liked."""
    async with world(start, model=model) as w:
        for _ in range(10):
            await w.talk("I killed the mussels", "Hide the mussels!", "Another thought?")
            assert "answers" not in await w.lines("profile")
            await w.next_day()
        shown = str((await w.context("Hello"))["messages"])
        for statistic in ("% of messages", "usually", "most often", "You spoke of"):
            assert statistic not in shown
        await w.clock.leap(7 * 24 * 3600)
        await w.talk("The mussels!")
        await w.next_day()
        assert 'seems: "answers": "prefers short answers"' in await w.lines("profile")


async def test_a_few_long_messages_are_summarized(start: StartServer) -> None:
    """By their tokens, in one request, down to half of the limit."""
    async with world(start, model=True, summary_tokens=1000, layers_off=["scratchpad"]) as w:
        assert w.model is not None
        w.model.script.background = lambda _: json.dumps({"lines": ["A feast was planned."]})
        await w.talk(*(f"I promise to bring {item} to the feast. " * 20 for item in _ITEMS[:4]))
        requests = [
            request
            for request in w.model.script.background_requests
            if "Former summary" in str(request)
        ]
        assert len(requests) == 1
        summarized = (await w.records("summary"))[0]["details"]["messages"]
        assert summarized >= 5
        assert (await w.context("And now?"))["layers"]["working"]["turns"] == 8 - summarized


async def test_a_failed_summary_leaves_the_context_unchanged(start: StartServer) -> None:
    """It is tried again later."""
    async with world(start, model=True) as w:
        assert w.model is not None
        good, w.model.script.background = w.model.script.background, lambda _: "no JSON"
        client = await w.server.session()
        for item in _ITEMS:
            await client.send(f"I promise to bring {item}")
            await client.expect_all("response.done", "memory.stored")
        await w.clock.advance(1)
        await eventually(lambda: len(w.model.script.background_requests) > 1)  # type: ignore[union-attr]
        w.relationship = FIRST_RELATIONSHIP
        assert (await w.context("And now?"))["layers"]["working"]["turns"] == 2 * len(_ITEMS)
        w.model.script.background = good
        await w.clock.advance(61)
        await w.wait_until_idle()
        assert await w.records("summary")


@WITH_AND_WITHOUT_MODEL
async def test_a_new_session_starts_with_a_recap(start: StartServer, model: bool) -> None:
    """For this user and companion only, and only until the first message."""
    async with world(start, model=model) as w:
        await w.talk("We decided to sail to Madeira in June with the old boat")
        await w.next_day()
        assert "Madeira" in await w.lines("opening")
        await w.talk("Hello!", user="bob")
        own_relationship, w.relationship = w.relationship, 2
        response = await w.response_to("GET", "/context?draft=Hi")
        assert response.status_code == 404
        w.relationship = own_relationship
        await w.talk("Good morning")
        assert await w.lines("opening") == ""


@WITH_AND_WITHOUT_MODEL
async def test_an_episode_is_found_by_a_name_in_it(start: StartServer, model: bool) -> None:
    """However the question is phrased."""
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


@WITH_AND_WITHOUT_MODEL
async def test_a_subject_of_three_sessions_becomes_a_topic(start: StartServer, model: bool) -> None:
    """One paragraph, rewritten when something is added."""
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


async def test_a_topic_is_written_from_everything_known_about_it(start: StartServer) -> None:
    """Dates, conclusions, notes and the former paragraph; the model is shown existing names."""
    prompts: list[str] = []
    names = iter(["violin", "violin lessons", "violin", "the violin strings"])

    def answer(chat: dict[str, Any]) -> str:
        prompt = chat["messages"][-1]["content"]
        if "Topics so far" in prompt:
            prompts.append(prompt)
            episode = {
                "topic": next(names),
                "summary": "They spoke of a violin lesson and of strings.",
                "conclusions": ["A string broke"],
            }
            return json.dumps({"episodes": [episode], "left_at": "They held the violin."})
        if prompt.startswith("Topic:"):
            prompts.append(prompt)
            return json.dumps(
                {"text": f"A violin, and its string that broke. {len(prompts)} asked."}
            )
        return background_answer(chat)

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = answer
        for text in ("I hold my violin", "I had a lesson", "A string broke", "I bought strings"):
            await w.talk(text)
            await w.next_day()
        (topic,) = await w.records("topics")
        assert topic["title"] == "violin"
        assert topic["details"]["sessions"] == 4
        # A conclusion leads to the first topic of its episode.
        first, *_, last = (prompt for prompt in prompts if prompt.startswith("Topic:"))
        assert 'Former paragraph: ""' in first
        assert "Concluded: A string broke" in first
        assert re.search(r"- \d+ [A-Z][a-z]+ 20\d\d: ", first)
        assert "its string that broke." in last
        assert last.count("They spoke of a violin lesson") == 1
        shown = [prompt.splitlines()[0] for prompt in prompts if "Topics so far" in prompt]
        assert shown[0] == "Topics so far: (none)"
        assert shown[-1] == 'Topics so far: "violin", "violin lessons"'


@WITH_AND_WITHOUT_MODEL
async def test_the_profile_holds_stated_and_inferred_facts(start: StartServer, model: bool) -> None:
    """Stated ones at once, inferred ones once a week; they are in every prompt."""
    async with world(start, model=model) as w:
        await w.talk("My favourite colour is green")
        for text in ("I planted a fig tree", "It rained a lot", *["The fig tree grows"] * 9):
            await w.next_day()
            await w.talk(text)
            assert "green" in await w.lines("profile")
        await w.clock.leap(6 * 24 * 3600)
        await w.talk("I eat figs")
        await w.next_day()
        kinds = {record["title"]: record["kind"] for record in await w.records("profile")}
        assert kinds["favourite colour"] == "stated"
        assert kinds["answers"] == "inferred"
        assert "short answers" in await w.lines("profile")


@WITH_AND_WITHOUT_MODEL
async def test_notes_are_taken_after_every_turn(start: StartServer, model: bool) -> None:
    """The user can read and edit them."""
    async with world(start, model=model) as w:
        await w.talk("My goal is to run a marathon")
        (entry,) = await w.records("scratchpad")
        assert "marathon" in entry["content"]
        assert entry["made_by"] == ("model" if model else "rules")
        assert "marathon" in await w.lines("scratchpad")
        change = {"content": "Wants to run two marathons", "revision": entry["revision"]}
        await w.request("PATCH", f"/records/{entry['id']}", change)
        await w.wait_until_idle()
        assert "two marathons" in await w.lines("scratchpad")
        assert (await w.response_to("PATCH", f"/records/{entry['id']}", change)).status_code == 409


async def test_invalid_note_operations_are_rejected_one_by_one(start: StartServer) -> None:
    """Valid ones are applied, and the rejected ones are counted."""
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
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "p", "", settings)
        )
        await w.talk("I have a goat")
        assert [record["content"] for record in await w.records("scratchpad")] == ["Has a goat"]
        assert "Note only pets." in w.model.script.background_requests[-1]["messages"][0]["content"]
        metrics = w.server.app.core.runtime.metrics
        assert metrics.corrections.labels("notes", "dropped")._value.get() == 1  # unknown operation
        assert metrics.dropped.labels("invalid_operation")._value.get() == 2


@WITH_AND_WITHOUT_MODEL
async def test_an_open_question_is_recalled_when_its_subject_comes_up(
    start: StartServer, model: bool
) -> None:
    """Until it is marked as settled."""
    async with world(start, model=model) as w:
        await w.talk("Let's talk about the broken compass of Zarco later")
        await w.next_day()
        line = await w.lines("questions", "I dreamt of the broken compass of Zarco")
        assert "left it open" in line
        assert "compass" in line
        (question,) = await w.records("questions")
        await w.request("PATCH", f"/records/{question['id']}", {"status": "settled"})
        await w.wait_until_idle()
        assert await w.lines("questions", "I dreamt of the broken compass of Zarco") == ""


@WITH_AND_WITHOUT_MODEL
async def test_a_deferred_question_waits_until_it_is_touched_on_again(
    start: StartServer, model: bool
) -> None:
    """It is in no prompt before; then it is recalled, and open again."""
    about = "I dreamt of the broken compass of Zarco"
    async with world(start, model=model) as w:
        await w.talk("Let's talk about the broken compass of Zarco later")
        await w.next_day()
        (question,) = await w.records("questions")
        path = f"/records/{question['id']}"
        refused = await w.response_to("PATCH", path, {"status": "postponed"})
        assert refused.status_code == 400 and "deferred" in refused.text
        await w.request("PATCH", path, {"status": "deferred"})
        await w.talk("I planted a fig tree")
        await w.next_day()
        assert "left open" not in await w.lines("hot")
        assert await w.lines("questions", "What a nice day for figs") == ""
        assert "compass" in await w.lines("questions", about)
        (question,) = await w.records("questions")
        assert question["details"]["status"] == "deferred"
        await w.talk(about)
        await w.next_day()
        (question,) = await w.records("questions")
        assert question["details"]["status"] == "open"


@WITH_AND_WITHOUT_MODEL
async def test_core_memory_keeps_manual_edits(start: StartServer, model: bool) -> None:
    """They are in it from then on; all revisions are in the history and can be restored."""
    async with world(start, model=model) as w:
        await w.talk("My favourite colour is green")
        await w.next_day()
        (hot,) = await w.records("hot")
        assert hot["content"]
        change = {"content": "Ana is in mourning.", "revision": hot["revision"]}
        await w.request("PATCH", f"/records/{hot['id']}", change)
        await w.wait_until_idle()
        await w.talk("I planted a fig tree")
        await w.next_day()
        (hot,) = await w.records("hot")
        assert "mourning" in hot["content"]
        assert hot["made_by"] == ("model" if model else "rules")
        assert "mourning" in await w.lines("hot")
        earlier = (await w.request("GET", f"/records/{hot['id']}/revisions"))["revisions"]
        assert "Ana is in mourning." in [revision["content"] for revision in earlier]
        first = {"revision": earlier[0]["revision"]}
        await w.request("POST", f"/records/{hot['id']}/restore", first)
        (restored,) = await w.records("hot")
        assert restored["content"] == earlier[0]["content"]


async def test_a_careless_model_cannot_remove_manual_edits_of_core_memory(
    start: StartServer,
) -> None:
    """However often it is rewritten."""
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = lambda chat: (
            background_answer(chat)
            if '{"text"' not in chat["messages"][0]["content"]
            else '{"text": "A fig tree was planted, and green is a favourite colour."}'
        )
        await w.talk("My favourite colour is green")
        await w.request("POST", "/records", {"layer": "hot", "content": "Call her captain."})
        for _ in range(2):
            await w.next_day()
            await w.talk("I planted a fig tree")
        (hot,) = await w.records("hot")
        assert hot["content"] == (
            "Call her captain.\nA fig tree was planted, and green is a favourite colour."
        )


@WITH_AND_WITHOUT_MODEL
async def test_pinned_records_are_recalled_when_asked_for(start: StartServer, model: bool) -> None:
    """Whether pinned by the user in chat or by the game."""
    async with world(start, model=model) as w:
        await w.talk("Save this for me: the gate code of the shed is 4711")
        assert "4711" in await w.lines("vault", "Do you remember the gate code of the shed?")
        assert await w.lines("vault", "The gate of the shed is green") == ""
        game = {"layer": "vault", "content": "Ana won the silver cup of Funchal", "by": "developer"}
        await w.request("POST", "/records", game)
        await w.wait_until_idle()
        assert "silver cup" in await w.lines("vault", "Remember the silver cup of Funchal?")


async def test_documents_of_a_companion_are_searched_with_memories(start: StartServer) -> None:
    """They are embedded in the background, and found by terms and vectors until deleted."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        page = "<script>x()</script><h1>Ferry</h1><p>The night ferry leaves pier nine at ten.</p>"
        url = f"http://127.0.0.1:{w.server.port}/v1/companions/wren/documents"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            uploaded = await http.post(
                url,
                params={"title": "Timetable", "user": "ana"},
                content=page,
                headers={"content-type": "text/html"},
            )
            assert uploaded.status_code == 202, uploaded.text

            async def embedded() -> int:
                listed = (await http.get(url, params={"user": "ana"})).json()["documents"]
                return int(listed[0]["embedded"])

            async with asyncio.timeout(PATIENCE):
                while await embedded() < 1:
                    await asyncio.sleep(0.02)
            await all_announcements_handled(w.server)
            line = await w.lines("library", "When does the night ferry leave?")
            assert "pier nine" in line
            assert "x()" not in line
            wrong = await http.post(url, params={"title": "x", "user": "ana"}, content=b"\xff")
            assert wrong.json()["error"]["param"] == "content-type"
            document = uploaded.json()["id"]
            await http.delete(f"{url}/{document}", params={"user": "ana"})
        await all_announcements_handled(w.server)
        assert await w.lines("library", "When does the night ferry leave?") == ""


async def test_deleting_a_document_invalidates_prefetched_contexts(start: StartServer) -> None:
    """Even if the draft does not change."""
    async with world(start, model=True) as w:
        assert w.model is not None
        client = await w.talk("Hello")
        url = f"http://127.0.0.1:{w.server.port}/v1/companions/wren/documents"
        question = "When does the night ferry leave?"
        async with httpx2.AsyncClient(timeout=PATIENCE, params={"user": "ana"}) as http:
            uploaded = await http.post(
                url,
                params={"title": "Timetable"},
                content="The night ferry leaves pier nine at ten.",
                headers={"content-type": "text/plain"},
            )
            await all_announcements_handled(w.server)
            assert "pier nine" in await w.lines("library", question)
            await client.draft(question)
            await client.send_raw({"type": "sync", "event_id": "sync"})
            await client.expect("error")  # the draft was processed
            await w.clock.advance(0.5)
            while (await client.expect("context.ready"))["trigger"] != "pause":
                pass
            assert (await http.delete(f"{url}/{uploaded.json()['id']}")).status_code == 200
        await all_announcements_handled(w.server)
        await client.send(question)
        assert (await client.expect("message.accepted"))["context"] != "hit"
        await client.expect("response.done")
        assert "pier nine" not in str(w.model.script.player_requests[-1])


@WITH_AND_WITHOUT_MODEL
async def test_behaviours_extend_the_prompt_or_run_after_the_reply(
    start: StartServer, model: bool
) -> None:
    """If their conditions hold; the client receives the outcome of post-reply behaviours."""
    behaviours = (
        Behaviour("pirate", "Answer like a pirate.", says=("ahoy",)),
        Behaviour("diary", "Write a diary line.", says=("ahoy",), after=True),
    )
    async with world(start, model=model) as w:
        settings = CompanionSettings(behaviours=behaviours)
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "p", "", settings)
        )
        client = await w.talk()
        if w.model is not None:
            w.model.script.background = lambda _: "A fine day."
        await client.send("Ahoy, Wren!")
        done = await client.expect("behaviour.done")
        assert (done["name"], done["text"]) == ("diary", "A fine day." if model else "")
        assert "Answer like a pirate." in str((await w.context("Ahoy again"))["messages"])
        assert "pirate" not in str((await w.context("Good day"))["messages"])


@WITH_AND_WITHOUT_MODEL
async def test_the_context_view_shows_exactly_what_the_model_is_given(
    start: StartServer, model: bool
) -> None:
    """With all layers filled, and within their token budget."""
    async with world(start, model=model) as w:
        await _fill_all_layers(w)
        await w.talk("My goal is to learn Greek")  # since the last update of core memory
        draft = "How is the lighthouse of Beatriz, do you remember?"
        shown = await w.context(draft)
        filled = {name for name, layer in shown["layers"].items() if layer["lines"]}
        assert filled >= {"profile", "hot", "scratchpad", "topics", "episodes", "memories"}
        spent = sum(layer["tokens"] for name, layer in shown["layers"].items() if name != "working")
        assert spent <= shown["budget"]
        assert shown["left_out"] == []
        if w.model is not None:
            await w.talk(draft)
            assert w.model.script.player_requests[-1]["messages"] == shown["messages"]


async def test_a_layer_that_exceeds_its_deadline_is_left_out(start: StartServer) -> None:
    """The others are present, and the response names the missing one."""
    async with world(start, model=False, layers_deadline_ms=3000, index_bytes=0) as w:
        await _fill_all_layers(w)
        pool = owner_of(w.server.app.core)
        async with pool.acquire() as raw, raw.transaction():
            await raw.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
            shown = await w.context("How is the lighthouse of Beatriz, do you remember?")
        assert shown["left_out"] == ["memories"]
        assert shown["layers"]["hot"]["tokens"] > 0


@pytest.mark.parametrize("layer", ["hot", "topics", "memories", "scratchpad"])
async def test_a_layer_can_be_disabled_for_one_relationship(start: StartServer, layer: str) -> None:
    """The configuration shows which level disabled it."""
    async with world(start, model=False) as w:
        await _fill_all_layers(w)
        await w.request("PATCH", "/config", {"settings": {"layers_off": [layer]}})
        shown = await w.context("How is the lighthouse of Beatriz, do you remember?")
        assert shown["layers"][layer]["tokens"] == 0
        assert shown["layers"][layer]["on"] is False
        config = await w.request("GET", "/config")
        assert config["layers_off"] == {"value": [layer], "from": "relationship"}
        wrong = await w.response_to("PATCH", "/config", {"settings": {"layers_off": ["soul"]}})
        assert wrong.json()["error"]["param"] == "settings.layers_off[0]"


_ITEMS = ("bread", "wine", "olives", "cheese", "figs", "honey", "nuts", "salt", "oil", "grapes",
           "lemons", "thyme")  # fmt: skip


async def test_a_message_may_carry_settings_for_its_turn(start: StartServer) -> None:
    """They apply to that turn only; the operator's settings are refused."""
    async with world(start, model=True) as w:
        assert w.model is not None
        client = await w.talk("I promise to remember the red door")
        off = {"layers_off": ["memories", "scratchpad", "working"]}
        question = {"type": "message.send", "text": "What about the door?"}
        await client.send_raw(question | {"id": "q1", "settings": off})
        await client.expect("response.done")
        assert "red door" not in str(w.model.script.player_requests[-1]["messages"])
        await client.send_raw(question | {"id": "q2"})
        await client.expect("response.done")
        assert "red door" in str(w.model.script.player_requests[-1]["messages"])
        await client.send_raw(question | {"id": "q3", "settings": {"llm_url": "http://evil"}})
        error = (await client.expect("error"))["error"]
        assert error["param"] == "settings.llm_url"


async def test_settings_of_a_relationship_apply_to_open_sessions(
    start: StartServer,
) -> None:
    """From the next message."""
    async with world(start, model=True) as w:
        assert w.model is not None
        client = await w.talk("I promise to remember the red door")
        off = {"layers_off": ["memories", "scratchpad", "working"]}
        await w.request("PATCH", "/config", {"settings": off})
        await w.wait_until_idle()
        await client.send("What about the door?")
        await client.expect("response.done")
        assert "red door" not in str(w.model.script.player_requests[-1]["messages"])


async def _fill_all_layers(w: World) -> None:
    """Talk on three days, so that every layer has content."""
    for text in (
        "My favourite colour is green. I began to build the lighthouse with Beatriz",
        "I decided to paint the lighthouse of Beatriz red. My goal is to finish the lighthouse",
        "The lighthouse of Beatriz has a lamp now. Let's talk about the lamp later",
    ):
        await w.talk(text)
        await w.clock.leap(A_DAY)
        await w.wait_until_idle()


async def test_background_work_needs_at_most_one_request_per_turn(start: StartServer) -> None:
    """Episodes, topics and core memory are written once per session."""
    async with world(start, model=True) as w:
        assert w.model is not None
        await w.talk("I planted a fig tree", "It grows", "It bears figs")
        assert len(w.model.script.background_requests) <= 3
        await w.next_day()
        assert len(w.model.script.background_requests) <= 6


async def test_background_work_can_be_left_to_rules(start: StartServer) -> None:
    """The model then writes replies and nothing else."""
    rated = CompanionSettings(significance=SignificanceRules(model=True))
    async with world(start, model=True, llm_background=False) as w:
        assert w.model is not None
        await w.server.app.core.stores.companions.put(CompanionFile("wren", "Wren", "p", "", rated))
        await w.talk("My goal is to run a marathon", "My favourite colour is green")
        await w.next_day()
        assert {record["made_by"] for record in await w.records("scratchpad")} == {"rules"}
        assert "green" in await w.lines("profile")
        assert await w.records("episodes")
        assert w.model.script.background_requests == []


async def test_a_relationship_is_curated_by_one_worker_at_a_time(
    start: StartServer,
) -> None:
    """However slow the model is: a second worker would take every note twice."""
    async with world(start, model=True) as w:
        assert w.model is not None
        script = w.model.script
        hold = script.hold_before = asyncio.Event()
        hold.set()

        def reply(_: object) -> list[str]:
            hold.clear()  # background requests hang from here on
            return ["Yes."]

        script.reply = reply
        client = await w.server.session()
        await client.send("Let's talk about the broken compass of Zarco later")
        await client.expect_all("response.done", "memory.stored")
        w.relationship = FIRST_RELATIONSHIP
        await w.request("POST", "/status")
        await eventually(lambda: len(script.background_requests) == 1)
        owner = owner_of(w.server.app.core)
        for _ in range(4):  # a lease lasts for 30 seconds
            await owner.execute("UPDATE relationships SET due_at = $1", w.clock.now())
            await w.clock.leap(600)
            for _ in range(20):
                await w.clock.advance(1)
                await asyncio.sleep(0.01)
        assert len(script.background_requests) == 1
        hold.set()
        await w.next_day()
        (question,) = await w.records("questions")
        assert "compass" in question["content"]


async def test_a_companion_may_replace_the_background_prompts(
    start: StartServer,
) -> None:
    """Of summary, episodes, topics and core memory."""
    prompts = Prompts(
        "Summary as a log.", "Episodes as a log.", "Topics as a log.", "Hot as a log."
    )
    async with world(start, model=True, summary_messages=12) as w:
        assert w.model is not None
        settings = CompanionSettings(prompts=prompts)
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "p", "", settings)
        )
        for number in range(3):
            await w.talk(
                *(f"My lighthouse has lamp {lamp}" for lamp in range(5 + 5 * (number == 0)))
            )
            await w.next_day()
        tasks = {
            request["messages"][0]["content"].partition(".")[0]
            for request in w.model.script.background_requests
        }
        assert tasks >= {f"{name} as a log" for name in ("Summary", "Episodes", "Topics", "Hot")}


_TASTES = [
    "rain", "old maps", "lighthouses", "jazz", "hiking", "chess", "bread", "trains", "opera",
    "crosswords", "tulips", "ferries", "herons", "cinnamon",
]  # fmt: skip


async def test_a_profile_holds_bare_values_and_never_drops_identity(
    start: StartServer,
) -> None:
    """However many likes there are; statements of others are ignored."""
    async with world(start, model=False) as w:
        await w.talk(
            "Call me Sam. I work as a nurse and I live in Porto.",
            "She said I live in a dream",
            "I'm lactose intolerant. Please keep your answers short.",
            *(f"I love {taste}" for taste in _TASTES),
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


async def test_a_manually_set_home_is_not_joined_by_stated_ones(start: StartServer) -> None:
    """Later statements add no entry to a slot that was edited manually."""
    async with world(start, model=False) as w:
        await w.talk("My name is Ana")
        manual = {"layer": "profile", "title": "home", "content": "Braga"}
        await w.request("POST", "/records", manual)
        await w.talk("I moved to Porto")
        homes = await w.records("profile", "home")
        assert [(home["content"], home["made_by"]) for home in homes] == [("Braga", "user")]


async def test_a_manually_set_home_replaces_the_stated_one(
    start: StartServer,
) -> None:
    """Whatever its title; other entries stay."""
    async with world(start, model=False) as w:
        await w.talk("My name is Ana", "I live in Lisbon", "I love jazz")
        home = {"layer": "profile", "title": "city", "content": "Lives in Braga"}
        await w.request("POST", "/records", home)
        likes = {"layer": "profile", "title": "likes", "content": "chess"}
        await w.request("POST", "/records", likes)
        contents = {record["content"] for record in await w.records("profile")}
        assert contents == {"Ana", "jazz", "Lives in Braga", "chess"}


async def test_a_removed_profile_entry_is_not_created_again(start: StartServer) -> None:
    """Other values of the same slot are."""
    async with world(start, model=False) as w:
        await w.talk("I love rain", "I love tea")
        (rain,) = [record for record in await w.records("profile") if record["content"] == "rain"]
        await w.request("DELETE", f"/records/{rain['id']}")
        await w.talk("I love rain, I really do", "I love jazz")
        likes = [record["content"] for record in await w.records("profile")]
        assert sorted(likes) == ["jazz", "tea"]


async def test_a_model_extracts_the_profile(start: StartServer) -> None:
    """In any language, also for slots of the companion; its entries are erased as usual."""
    extracted = [
        {"slot": "home", "value": "Wien"},
        {"slot": "boat", "value": "Jolle Aurora"},
        {"slot": "mood", "value": "good"},
    ]

    def background(chat: Chat) -> str:
        task, prompt = (message["content"] for message in chat["messages"][:2])
        if '"entries": ' not in task:
            return background_answer(chat)
        return json.dumps({"entries": extracted if "Wien" in prompt else []})

    rules = ProfileRules(slots={"boat": ProfileSlot("what the user sails")})
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = background
        settings = CompanionSettings(profile=rules)
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "p", "", settings)
        )
        await w.talk("My name is Ana", "Ich wohne in Wien und segle eine Jolle namens Aurora")
        entries = await w.records("profile")
        assert {(entry["title"], entry["content"], entry["made_by"]) for entry in entries} == {
            ("name", "Ana", "rules"), ("home", "Wien", "model"), ("boat", "Jolle Aurora", "model"),
        }  # fmt: skip
        dropped = w.server.app.core.runtime.metrics.dropped.labels("invalid_entry")
        assert dropped._value.get() >= 1  # it begins anew where rules wrote at the same moment
        await w.request("DELETE", "/memories?about=Wien")
        await w.wait_until_idle()
        assert [record["content"] for record in await w.records("profile")] == ["Ana"]


@pytest.mark.parametrize(
    ("off", "asked"),
    [
        ([], {"operations", "entries"}),
        (["profile"], {"operations"}),
        (["scratchpad"], {"entries"}),
        (["scratchpad", "profile"], None),
    ],
)
async def test_notes_and_profile_are_one_request(
    start: StartServer, off: list[str], asked: set[str] | None
) -> None:
    """For what is on, each turn once; what is switched on later begins with what is said then."""
    said = "My name is Ana, and I keep twelve bees"
    async with world(start, model=True, layers_off=off) as w:
        assert w.model is not None
        script = w.model.script
        await w.talk(said)
        await w.next_day()
        before = script.background_requests
        forms = [form & {"operations", "entries"} for form in map(_properties, before)]
        assert [form for form in forms if form] == ([] if asked is None else [asked])
        assert "bees" not in str([await w.records(layer) for layer in off])
        await w.request("PATCH", "/config", {"settings": {"layers_off": []}})
        await w.talk("It rains")
        after = script.background_requests[len(before) :]
        (read,) = [chat for chat in after if _properties(chat) == {"operations", "entries"}]
        assert said not in read["messages"][1]["content"].partition("Said:")[2]


def _properties(chat: Chat) -> set[str]:
    """Return the fields that an answer is to have."""
    return set(chat["response_format"]["json_schema"]["schema"]["properties"])


async def test_a_model_reads_for_the_profile_while_it_is_shown_notes(start: StartServer) -> None:
    """So what it finds is derived from these, too, also if it has them removed."""

    def background(chat: Chat) -> str:
        task, prompt = (message["content"] for message in chat["messages"][:2])
        notes, _, said = prompt.partition("Said:")
        if '"entries": ' not in task or "Bienen" not in said:
            return background_answer(chat)
        operations = [{"op": "DELETE", "id": 1}] if "keine" in said and "1." in notes else []
        home = {"slot": "home", "value": "Wien" if "Wien" in said else "Graz"}
        return json.dumps({"operations": operations, "entries": [home]})

    async def home() -> Any:
        records = (await w.request("GET", "/export"))["records"]
        return next(record for record in records if record["title"] == "home")

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = background
        await w.talk("The ferry was late")
        await w.talk("Meine Bienen wohnen in Graz, und ich bei ihnen")
        (note,) = await w.records("scratchpad")
        first = await home()
        assert (first["content"], first["sources"]) == ("Graz", [str(note["id"])])
        await w.talk("Die ferry hat keine Bienen, und ich wohne in Wien")
        assert await w.records("scratchpad") == []
        second = await home()
        assert (second["content"], second["sources"]) == ("Wien", [])
        assert len(second["turns"]) > len(first["turns"]) > 0


@pytest.mark.parametrize("answer", ['{"episodes": []}', '{"left_at": "At the quay."}'])
async def test_rules_fill_in_what_a_model_omits(start: StartServer, answer: str) -> None:
    """Each session gets an episode and a recap, however small the model is."""

    def background(chat: Chat) -> str:
        return (
            answer if '{"episodes"' in chat["messages"][0]["content"] else background_answer(chat)
        )

    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.background = background
        await w.talk("We sail to Madeira in June")
        await w.next_day()
        (episode,) = await w.records("episodes")
        assert (episode["made_by"], "Madeira" in episode["content"]) == ("rules", True)
        (opening,) = await w.records("opening")
        assert opening["content"]
