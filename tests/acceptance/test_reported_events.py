"""What a game reports of what happened: remembered and narrated, and nothing that anybody said."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from tests.acceptance.traces import stored_text
from tests.acceptance.world import World, world
from tests.conftest import StartServer

BRIDGE = "The bridge over the river Corgo collapsed"
QUESTION = "What happened to the bridge?"
FIRST_PERSON = "My name is Boris and I live in Oslo. Save this: I love chess"


def event(number: int = 1, **fields: object) -> dict[str, object]:
    """Return an event with some fields changed; those that are None are left out."""
    whole = {"id": f"e{number}", "type": "event", "text": BRIDGE} | fields
    return {name: value for name, value in whole.items() if value is not None}


async def report(w: World, *events: dict[str, object]) -> list[Any]:
    """Report events; return what the server answers about each."""
    stored: list[Any] = (await w.request("POST", "/events", {"events": events}))["events"]
    return stored


@pytest.mark.parametrize("type_", ["observation", "event"])
async def test_what_happened_is_narrated_and_nobody_said_it(start: StartServer, type_: str) -> None:
    """It is recalled at once, by its time, and stands in no dialogue."""
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        at = w.clock.now() - timedelta(days=3)
        (stored,) = await report(w, event(type=type_, at=at.isoformat()))
        assert (stored["id"], stored["duplicate"]) == ("e1", False)
        memory = (await w.memories())[BRIDGE]
        assert (memory["memory_type"], memory["speaker"]) == (type_, "companion")
        assert memory["created_at"].startswith(f"{at:%Y-%m-%dT%H:%M}")
        shown = await w.context(QUESTION)
        assert f'ago, on {at.day} April 2026, this happened: "{BRIDGE}"' in "\n".join(
            shown["layers"]["memories"]["lines"]
        )
        *_, player = (m["content"] for m in shown["messages"] if m["role"] == "user")
        assert BRIDGE not in player.partition("</memories>")[2]
        assert str(shown["messages"]).count(BRIDGE) == 1
        turns = (await w.request("GET", "/turns"))["turns"]
        assert [turn["text"] for turn in turns if BRIDGE in turn["text"]] == []
        client = await w.talk(QUESTION)
        await client.close()
        replies = [e["text"] for e in w.events if e["type"] == "response.done"]
        assert f"this happened: “{BRIDGE}”" in replies[-1]
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        assert BRIDGE not in [turn["text"] for turn in opened["turns"]]


async def test_an_event_is_stored_once(start: StartServer) -> None:
    """However often its id comes, in one request or several, also after it was erased."""
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        first, second = await report(w, event(), event(text="It was rebuilt"))
        assert (first["duplicate"], second["duplicate"]) == (False, True)
        before = await w.memories()
        (third,) = await report(w, event(text="It was rebuilt"))
        assert third == second == first | {"duplicate": True}
        assert await w.memories() == before
        await report(w, event(2))  # it happened again
        memories = (await w.request("GET", "/memories"))["memories"]
        assert [memory["content"] for memory in memories].count(BRIDGE) == 2
        await w.request("DELETE", "/memories?about=Corgo")
        assert (await report(w, event()))[0]["duplicate"]
        assert "corgo" not in await stored_text(w.server)


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_nothing_is_derived_about_the_player(start: StartServer, model: bool) -> None:
    """No profile entry, note, pinned record, episode or summary, whatever an event says."""
    async with world(start, model=model) as w:
        await w.talk("I walked along the river with my dog Bruno")
        await report(w, event(text=FIRST_PERSON))
        await w.wait_until_idle()
        await w.talk("The weather was fine by the way, and we met friends")
        await w.next_day()
        records = (await w.request("GET", "/records"))["records"]
        assert "Boris" not in str(records)
        assert "Oslo" not in str(records)
        assert FIRST_PERSON in await w.memories()


async def test_what_happened_is_erased_with_what_repeats_it(start: StartServer) -> None:
    """By its words, its turn or its memory, and a reply that told of it as well."""
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        for number, how in enumerate(("about", "turn", "memory", "everything"), 1):
            (stored,) = await report(w, event(number))
            await w.talk(QUESTION)
            assert "corgo" in await stored_text(w.server)
            memory = (await w.memories())[BRIDGE]["id"]
            path = {
                "about": "/memories?about=Corgo",
                "turn": f"/memories?turn={stored['turn_id']}",
                "memory": f"/memories/{memory}",
                "everything": "/memories",
            }[how]
            await w.request("DELETE", path)
            await w.wait_until_idle()
            assert "corgo" not in await stored_text(w.server), how


async def test_a_corrected_event_is_found_by_its_new_text(start: StartServer) -> None:
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        await report(w, event())
        memory = (await w.memories())[BRIDGE]["id"]
        await w.request("PATCH", f"/memories/{memory}", {"content": "The bridge was repaired"})
        assert 'this happened: "The bridge was repaired"' in await w.lines("memories", QUESTION)
        assert "corgo" not in await stored_text(w.server)


async def test_an_export_keeps_what_happened(start: StartServer) -> None:
    """With its type, its id and no session; an import that contradicts itself is refused."""
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        await report(w, event(type="observation"), event(2, text="The mill burned down"))
        exported = await w.request("GET", "/export")
        await w.request("DELETE", "/memories")
        happened = [turn for turn in exported["turns"] if turn["event_id"] is not None]
        for wrong in (
            {"event_type": None},
            {"event_id": None},
            {"session": exported["sessions"][0]["id"]},
            {"event_id": happened[1]["event_id"]},
        ):
            turns = [turn | wrong if turn is happened[0] else turn for turn in exported["turns"]]
            refused = await w.import_file(exported | {"turns": turns})
            param = refused.json()["error"]["param"]
            assert refused.status_code == 400, wrong
            assert re.fullmatch(r"turns\[\d\]\.event_id", param), wrong
        assert (await w.import_file(exported)).is_success
        assert (await w.memories())[BRIDGE]["memory_type"] == "observation"
        assert f'this happened: "{BRIDGE}"' in await w.lines("memories", QUESTION)
        assert (await report(w, event()))[0]["duplicate"]


async def test_another_process_recalls_what_happened(start: StartServer) -> None:
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        await report(w, event())
        other = World(await start(clock=w.clock), w.clock, None)
        other.relationship = w.relationship
        assert f'this happened: "{BRIDGE}"' in await other.lines("memories", QUESTION)


async def test_the_error_for_an_invalid_event_names_the_field(start: StartServer) -> None:
    """And nothing of the request is stored."""
    async with world(start, model=False, max_text_chars=100) as w:
        await w.talk("I walked along the river with my dog Bruno")
        before = await stored_text(w.server)
        late = (w.clock.now() + timedelta(minutes=6)).isoformat()
        for wrong, param in (
            (event(type="rumour"), "events[1].type"),
            (event(type=None), "events[1].type"),
            (event(type=1), "events[1].type"),
            (event(id=None), "events[1].id"),
            (event(id=""), "events[1].id"),
            (event(id="x" * 129), "events[1].id"),
            (event(text=None), "events[1].text"),
            (event(text=" "), "events[1].text"),
            (event(text="x" * 101), "events[1].text"),
            (event(text="a\0b"), "events[1].text"),
            (event(at="yesterday"), "events[1].at"),
            (event(at="2026-01-01T10:00:00"), "events[1].at"),
            (event(at=late), "events[1].at"),
            (event(speaker="user"), "events[1].speaker"),
            ("It burned", "events[1]"),
        ):
            body = {"events": [event(7), wrong]}
            response = await w.response_to("POST", "/events", body)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), wrong
            assert "expected" in response.json()["error"]["message"]
        bodies: tuple[tuple[object, str], ...] = (
            ({"events": []}, "events"),
            ({"events": [event(number) for number in range(101)]}, "events"),
            ({"events": "It burned"}, "events"),
            ({}, "events"),
            ([], "body"),
        )
        for whole, param in bodies:
            response = await w.response_to("POST", "/events", whole)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), whole
        assert await stored_text(w.server) == before


async def test_events_are_stored_for_their_user_with_consent_only(start: StartServer) -> None:
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        w.user = "eve"
        refused = await w.response_to("POST", "/events", {"events": [event()]})
        assert refused.status_code == 404
        w.user = "ana"
        await w.server.app.core.stores.companions.put(
            CompanionFile(
                "wren", "Wren", "You are Wren.", settings=CompanionSettings(consent="required")
            )
        )
        refused = await w.response_to("POST", "/events", {"events": [event()]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (409, "user")
        assert "corgo" not in await stored_text(w.server)


async def test_as_many_events_as_a_request_may_have_are_stored(start: StartServer) -> None:
    """Also by two requests at once, of which each event is stored by one."""
    async with world(start, model=False) as w:
        await w.talk("I walked along the river with my dog Bruno")
        events = [event(number, text=f"House {number} of the town fell") for number in range(100)]
        answers = await asyncio.gather(report(w, *events), report(w, *events))
        for first, second in zip(*answers, strict=True):
            assert first["turn_id"] == second["turn_id"]
            assert first["duplicate"] is not second["duplicate"]
        happened = [m for m in (await w.memories()).values() if m["memory_type"] == "event"]
        assert len(happened) + 1 == 100  # of the first page, which begins with what was said
