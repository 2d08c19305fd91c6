"""Replies from a language model server that behaves, and from one that does not."""

import asyncio
import re

import pytest

from foremind.client import Client
from foremind.testing.model_server import Script, scripted_model
from tests.conftest import StartServer, eventually, owner_of


async def said(client: Client) -> list[tuple[str, str]]:
    """The stored turns, as the next session shows them."""
    opened = await client.open_session("wren", user_id="ana", name="Ana")
    return [(turn["speaker"], turn["text"]) for turn in opened["turns"]]


async def test_the_model_is_given_persona_history_and_message(start: StartServer) -> None:
    """In this order, with a hard limit of tokens; no memory repeats what the history says."""
    async with scripted_model() as model:
        client = await (await start(llm_url=model.url, llm_model="m", llm_max_tokens=77)).session()
        await client.send("I promise to remember the red door", "m1")
        await client.expect("memory.stored")
        await client.send("What about the door?", "m2")
        await client.expect("message.accepted")
        await client.expect("response.done")
        request = model.script.spoken[-1]
    assert (request["model"], request["max_tokens"], request["stream"]) == ("m", 77, True)
    system, *history, last = request["messages"]
    assert "You are Wren" in system["content"]
    assert '"Ana"' in system["content"]
    assert history == [
        {"role": "user", "content": "I promise to remember the red door"},
        {"role": "assistant", "content": "Hello there."},
    ]
    assert re.fullmatch(
        r"Today is \w+, \d+ \w+ \d{4}\.\n\nWhat about the door\?",
        last["content"],
    )


async def test_the_request_leaves_before_the_message_is_stored_but_no_word_is_heard(
    start: StartServer,
) -> None:
    """The reply already runs while the transaction does; deltas follow `message.accepted`."""
    async with scripted_model() as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        pool = owner_of(server.app.core)
        async with pool.acquire() as raw, raw.transaction():
            await raw.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
            await client.send("Hello", "m1")
            await eventually(lambda: len(model.script.requests) == 1)
            await client.send_raw({"type": "sync", "event_id": "sync"})
            events = [await client.next_event()]
            while events[-1]["type"] != "error":
                events.append(await client.next_event())
            assert {event["type"] for event in events} <= {"context.ready", "error"}
        types = [(await client.next_event())["type"] for _ in range(3)]
        assert types == ["context.ready", "message.accepted", "response.created"]
        assert (await client.expect("response.done"))["text"] == "Hello there."


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(status=500), "model_refused"),
        (Script(status=401), "model_refused"),
        (Script(body="<html>What?</html>"), "model_broken"),
        (Script(body="data: {nonsense\n\n"), "model_broken"),
        (Script(body='data: {"choices": "none"}\n\n'), "model_broken"),
        (Script(reply=lambda _: []), "model_broken"),
    ],
)
async def test_a_broken_model_fails_the_reply_and_nothing_else(
    start: StartServer, script: Script, code: str
) -> None:
    """The turn is kept, the error says what to look at, the session lives."""
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello", "m1")
        await client.expect("message.accepted")
        done = await client.expect("response.done")
        assert (done["status"], done["text"], done["error"]["code"]) == ("failed", "", code)
        assert done["error"]["retryable"] is True
        assert await said(await server.connect()) == [("user", "Hello")]
        script.status, script.body, script.reply = 200, None, lambda _: ["Better", " now."]
        await client.send("And now?", "m2")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("completed", "Better now.")


async def test_a_model_that_is_away_or_slow_is_said_to_be_so(start: StartServer) -> None:
    """Each with its own code."""
    server = await start(llm_url="http://127.0.0.1:1/v1")
    client = await server.session()
    await client.send("Hello")
    assert (await client.expect("response.done"))["error"]["code"] == "model_unreachable"
    async with scripted_model(Script(hold_before=asyncio.Event())) as model:
        server = await start(llm_url=model.url, llm_token_timeout_s=0.2)
        client = await server.session()
        await client.send("Hello")
        assert (await client.expect("response.done"))["error"]["code"] == "model_timeout"


@pytest.mark.parametrize("words", [0, 1])
@pytest.mark.parametrize("limit", ["llm_token_timeout_s", "llm_reply_timeout_s"])
async def test_a_model_that_stops_answering_is_said_to_be_slow(
    start: StartServer, limit: str, words: int
) -> None:
    """Before the first word or after it, whichever limit it runs into; what was said stays said."""
    held = Script(hold_before=asyncio.Event(), hold_after=words or None)
    async with scripted_model(held) as model:
        server = await start(**{"llm_url": model.url, limit: 3.0 if words else 0.2})
        client = await server.session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("failed", "Hello" if words else "")
        error = done["error"]
        assert (error["type"], error["code"]) == ("unavailable_error", "model_timeout")
        assert error["retryable"] is True


async def test_a_cut_stream_keeps_what_was_said(start: StartServer) -> None:
    """Only what was sent to the player counts as said."""
    async with scripted_model(Script(reply=lambda _: list("abcdef"), cut_after=3)) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert (done["status"], done["text"], done["error"]["code"]) == (
            "failed",
            "abc",
            "model_broken",
        )
        assert await said(await server.connect()) == [("user", "Hello"), ("companion", "abc")]


@pytest.mark.parametrize("by", ["cancel", "message"])
async def test_a_reply_can_be_stopped(start: StartServer, by: str) -> None:
    """By the player or a new message; the request to the model ends too."""
    script = Script(
        reply=lambda chat: ["one ", "two ", "three"] if len(chat["messages"]) == 2 else ["Yes."],
        hold_before=asyncio.Event(),
        hold_after=2,
    )
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello", "m1")
        created = await client.expect("response.created")
        for _ in range(2):
            await client.expect("response.output_text.delta")
        if by == "cancel":
            await client.cancel(created["response_id"])
        else:
            await client.send("Wait", "m2")
        await eventually(lambda: model.script.finished[:1] == ["left"])
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("cancelled", "one two ")
        if by == "message":
            assert (await client.expect("response.done"))["text"] == "Yes."
        turns: list[tuple[str, str]] = []
        while len(turns) < 2:
            turns = await said(await server.connect())
        assert turns[:2] == [("user", "Hello"), ("companion", "one two ")]


@pytest.mark.parametrize("reply", [["word "] * 5000, ["word " * 5000]], ids=["many", "one"])
async def test_a_model_that_never_stops_is_stopped(start: StartServer, reply: list[str]) -> None:
    """Also where it ignores the limit of tokens, piece by piece or at once."""
    async with scripted_model(Script(reply=lambda _: reply)) as model:
        client = await (await start(llm_url=model.url, llm_max_tokens=10)).session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert len(done["text"]) == 10 * 16


async def test_without_a_model_the_client_is_told(start: StartServer) -> None:
    """`model` is null and the offline voice answers."""
    client = await (await start()).connect()
    opened = await client.open_session("wren", user_id="ana")
    assert opened["model"] is None


async def test_what_a_model_thinks_aloud_is_neither_heard_nor_kept(start: StartServer) -> None:
    """Not in a delta, not in the whole reply, not among the turns."""
    thinking = ["<think>\n", "Ana greets me.", "\n</think>", "\n\n", "Hello", " Ana."]
    async with scripted_model(Script(reply=lambda _: thinking)) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello", "m1")
        delta = await client.expect("response.output_text.delta")
        done = await client.expect("response.done")
        assert (delta["delta"], done["text"]) == ("Hello", "Hello Ana.")
        assert ("companion", "Hello Ana.") in await said(await server.connect())


async def test_a_model_that_only_thinks_says_what_to_do(start: StartServer) -> None:
    """Its limit of tokens was spent before it came to speak."""
    async with scripted_model(Script(reply=lambda _: ["<think>", "Hm. "] * 3)) as model:
        client = await (await start(llm_url=model.url)).session()
        await client.send("Hello", "m1")
        done = await client.expect("response.done")
    assert done["status"] == "failed"
    assert done["error"]["code"] == "model_broken"
    assert "thought aloud" in done["error"]["message"]
