"""Two connections share a session: each knows the messages of the other."""

from typing import Any

import httpx2

from foremind_client import Client
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import PATIENCE, StartServer


def history_of(script: Script) -> list[str]:
    """Return the history in the last request for a reply."""
    return [message["content"] for message in script.player_requests[-1]["messages"][1:]]


async def test_connections_of_one_session_share_the_history(start: StartServer) -> None:
    """Messages and replies of both, in order, and each once."""
    async with scripted_model(Script(reply=lambda _: ["Aye."])) as model:
        server = await start(llm_url=model.url, layers_off=["memories"])
        first, second = await server.session(), await server.session()
        for client, text in (
            (first, "The rope is red"),
            (second, "The lamp is out"),
            (first, "And?"),
        ):
            await client.send(text)
            await client.expect("response.done")
        *history, last = history_of(model.script)
        assert history == ["The rope is red", "Aye.", "The lamp is out", "Aye."]
        assert last.endswith("And?")


async def test_connections_to_two_processes_share_the_history(start: StartServer) -> None:
    """Once a turn is answered and announced."""
    async with scripted_model(Script(reply=lambda _: ["I promise, aye."])) as model:
        first_server = await start(llm_url=model.url, layers_off=["memories"])
        second_server = await start(llm_url=model.url, layers_off=["memories"])
        first, second = await first_server.session(), await second_server.session()
        await first.send("Hello")
        await first.expect("response.done")
        await second.send("I promise that the rope is red")
        await second.expect_all("response.done", "memory.stored")
        assert (await first.expect("turn.stored"))["turn"]["speaker"] == "user"
        assert (await first.expect("turn.stored"))["turn"]["speaker"] == "companion"
        await first.send("What do you know?")
        await first.expect("response.done")
        assert "I promise that the rope is red" in history_of(model.script)


async def _heard(client: Client, count: int) -> list[tuple[str, str]]:
    """Return who said what, of the next turns that another window made."""
    turns = [(await client.expect("turn.stored"))["turn"] for _ in range(count)]
    return [(turn["speaker"], turn["text"]) for turn in turns]


async def test_windows_hear_both_sides_of_each_other(start: StartServer) -> None:
    """Each turn once and in order, also over HTTP and in another process; none of their own."""
    async with scripted_model(Script(reply=lambda _: ["Aye."])) as model:
        server = await start(llm_url=model.url, layers_off=["memories"])
        other_server = await start(llm_url=model.url, layers_off=["memories"])
        first, second = await server.session(), await server.session()
        third = await other_server.session()
        for said, speaker, listeners in (
            ("The rope is red", first, (second, third)),
            ("The lamp is out", second, (first, third)),
            ("The fog is in", third, (first, second)),
        ):
            await speaker.send(said)
            done = await speaker.expect("response.done", "turn.stored")
            assert done["type"] == "response.done", done
            for listener in listeners:
                assert await _heard(listener, 2) == [("user", said), ("companion", done["text"])]
        body = {"id": "h1", "companion": "wren", "user": "ana", "text": "And now?"}
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            answer = await http.post(f"http://127.0.0.1:{server.port}/v1/turns", json=body)
        assert answer.is_success
        for listener in (first, second, third):
            assert await _heard(listener, 2) == [("user", "And now?"), ("companion", "Aye.")]
        *history, _ = history_of(model.script)
        messages = ["The rope is red", "The lamp is out", "The fog is in"]
        assert history == [text for message in messages for text in (message, "Aye.")]


async def _changes(client: Client, count: int) -> tuple[list[str], list[Any]]:
    """Return which turns are gone, and the next turns; which of both comes first is not said."""
    gone: list[str] = []
    turns: list[Any] = []
    while not gone or len(turns) < count:
        event = await client.expect("turn.erased", "turn.stored")
        gone += event.get("turn_ids", [])
        turns += [event["turn"]] if "turn" in event else []
    return gone, turns


async def test_windows_hear_of_edits_and_choices_of_each_other(start: StartServer) -> None:
    """What is gone by its turns, and what stands then, also in another process."""
    replies = iter(["First.", "Second.", "Third."])
    script = Script(reply=lambda _: [next(replies)], background=lambda _: "{}")
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url, layers_off=["memories"])
        other_server = await start(llm_url=model.url, layers_off=["memories"])
        first, second = await server.session(), await server.session()
        others = (second, await other_server.session())
        message_id = await first.send("The rope is red")
        asked = (await first.expect("message.accepted"))["turn_id"]
        await first.expect("response.done")
        shown = [[(await other.expect("turn.stored"))["turn"] for _ in "12"] for other in others]
        assert [turn["turn_id"] for turn, _ in shown] == [asked, asked]
        standing = shown[0][1]["turn_id"]
        for change, text, index in (
            ({"type": "response.regenerate", "id": "g1"}, "Second.", 1),
            ({"type": "response.choose", "index": 0}, "First.", 0),
        ):
            await first.send_raw(change | {"message_id": message_id})
            for other in others:
                gone, (turn,) = await _changes(other, 1)
                assert gone == [standing]
                assert (turn["text"], turn["index"], turn["count"]) == (text, index, 2)
                assert turn["reply_to"] == message_id
            standing = turn["turn_id"]
        edit = {"type": "message.edit", "id": "e1", "text": "The rope is blue"}
        await first.send_raw(edit | {"message_id": message_id})
        for other in others:
            gone, turns = await _changes(other, 2)
            assert sorted(gone) == sorted([asked, standing])
            assert [turn["text"] for turn in turns] == ["The rope is blue", "Third."]


async def test_a_window_that_lost_its_connection_hears_the_others_later(
    start: StartServer,
) -> None:
    """As it hears what it missed of its own."""
    server = await start()
    first, second = await server.connect(), await server.session()
    opened = await first.open_session("wren", user_id="ana", name="Ana")
    await first.close()
    await second.send("The rope is red")
    done = await second.expect("response.done")
    first = await server.connect()
    resumed = await first.open_session(
        "wren", user_id="ana", name="Ana", resume=(opened["session_id"], opened["seq"])
    )
    assert resumed["resumed"]
    assert await _heard(first, 2) == [("user", "The rope is red"), ("companion", done["text"])]
