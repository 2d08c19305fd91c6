"""Replies from a language model server that works, and from one that fails."""

import asyncio
import re

import pytest
from structlog.testing import capture_logs

from foremind_client import Client
from foremind_eval.doubles.model_server import Script, chunk_line, scripted_model
from tests.conftest import StartServer, eventually, owner_of


async def stored_turns(client: Client) -> list[tuple[str, str]]:
    """Return the stored turns as the next session shows them."""
    opened = await client.open_session("wren", user_id="ana", name="Ana")
    return [(turn["speaker"], turn["text"]) for turn in opened["turns"]]


async def test_the_model_is_given_persona_history_and_message(start: StartServer) -> None:
    """In this order, with a token limit; no memory repeats the history."""
    async with scripted_model() as model:
        client = await (await start(llm_url=model.url, llm_model="m", llm_max_tokens=77)).session()
        await client.send("I promise to remember the red door", "m1")
        await client.expect("memory.stored")
        await client.send("What about the door?", "m2")
        await client.expect("message.accepted")
        await client.expect("response.done")
        request = model.script.player_requests[-1]
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


async def test_the_model_is_asked_before_the_message_is_stored_but_nothing_is_sent(
    start: StartServer,
) -> None:
    """Its request runs concurrently with the transaction; deltas follow `message.accepted`."""
    async with scripted_model() as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        pool = owner_of(server.app.core)
        async with pool.acquire() as raw, raw.transaction():
            await raw.execute("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")
            await client.send("Hello", "m1")
            await eventually(lambda: len(model.script.player_requests) == 1)
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
        (Script(status=500), "model_broken"),
        (Script(status=429), "model_busy"),
        (Script(status=401), "model_refused"),
        (Script(body="<html>What?</html>"), "model_broken"),
        (Script(body="data: {nonsense\n\n"), "model_broken"),
        (Script(body='data: {"choices": "none"}\n\n'), "model_broken"),
        (Script(reply=lambda _: []), "model_broken"),
    ],
)
async def test_a_broken_model_fails_only_the_reply(
    start: StartServer, script: Script, code: str
) -> None:
    """The message is stored, the error has its code, and the session continues."""
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello", "m1")
        await client.expect("message.accepted")
        done = await client.expect("response.done")
        assert (done["status"], done["text"], done["error"]["code"]) == ("failed", "", code)
        assert done["error"]["retryable"] is True
        assert await stored_turns(await server.connect()) == [("user", "Hello")]
        script.status, script.body, script.reply = 200, None, lambda _: ["Better", " now."]
        await client.send("And now?", "m2")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("completed", "Better now.")


async def test_an_unreachable_model_and_a_slow_one_have_their_own_error_codes(
    start: StartServer,
) -> None:
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
async def test_a_model_that_stops_sending_is_a_timeout(
    start: StartServer, limit: str, words: int
) -> None:
    """Before or after the first word, with either limit; the text so far is kept."""
    script = Script(hold_before=asyncio.Event(), hold_after=words or None)
    async with scripted_model(script) as model:
        server = await start(**{"llm_url": model.url, limit: 3.0 if words else 0.2})
        client = await server.session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("failed", "Hello" if words else "")
        error = done["error"]
        assert (error["type"], error["code"]) == ("unavailable_error", "model_timeout")
        assert error["retryable"] is True


async def test_an_interrupted_stream_keeps_the_text_so_far(start: StartServer) -> None:
    """The text that was sent to the player is stored."""
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
        assert await stored_turns(await server.connect()) == [
            ("user", "Hello"),
            ("companion", "abc"),
        ]


@pytest.mark.parametrize("by", ["cancel", "message"])
async def test_a_reply_can_be_cancelled(start: StartServer, by: str) -> None:
    """By the player or by a new message; the request to the model ends as well."""
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
            turns = await stored_turns(await server.connect())
        assert turns[:2] == [("user", "Hello"), ("companion", "one two ")]


_ENDLESS = [f"word{number} " for number in range(5000)]


@pytest.mark.parametrize("reply", [_ENDLESS, ["".join(_ENDLESS)]], ids=["many", "one"])
async def test_an_endless_reply_is_cut_off(start: StartServer, reply: list[str]) -> None:
    """If the model ignores the token limit, in many pieces or in one; it ends with a word."""
    async with scripted_model(Script(reply=lambda _: reply)) as model:
        client = await (await start(llm_url=model.url, llm_max_tokens=10)).session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert 10 * 15 < len(done["text"]) <= 10 * 16
        assert done["text"].endswith("…")


async def test_a_reply_that_its_limit_ends_ends_with_a_sentence(start: StartServer) -> None:
    """In its deltas, too, and as it is stored."""
    said = "The sea is calm. The boats are out. Nobody knows why"
    words = re.findall(r"\S+ ?", said)
    async with scripted_model(Script(reply=lambda _: words, chars_per_token=4)) as model:
        server = await start(llm_url=model.url, llm_max_tokens=11)
        client = await server.session()
        await client.send("Hello")
        text = ""
        while (event := await client.next_event())["type"] != "response.done":
            text += event.get("delta", "")
        assert event["status"] == "completed"
        assert event["text"] == text == "The sea is calm. The boats are out."
        assert ("companion", text) in await stored_turns(await server.connect())


async def test_a_loop_is_stopped_and_not_remembered(start: StartServer) -> None:
    """Its passage is said once in what is done and stored."""
    passage = "I promise that I was born in Oslo. "
    script = Script(reply=lambda _: ["Well. ", *[passage] * 300])
    with capture_logs() as logged:
        async with scripted_model(script) as model:
            server = await start(llm_url=model.url, llm_max_tokens=4000, remember_replies="all")
            client = await server.session()
            await client.send("I promise to call you", "m1")
            done = await client.expect("response.done")
            stored = await client.expect("memory.stored")
            assert done["status"] == "completed"
            assert done["text"] == f"Well. {passage}".strip()
            assert ("companion", done["text"]) in await stored_turns(await server.connect())
            contents = await owner_of(server.app.core).fetch("SELECT content FROM memories")
            assert [memory["content"] for memory in contents] == ["I promise to call you"]
            assert stored["message_id"] == "m1"
    (line,) = [line for line in logged if line["event"] == "response.done"]
    assert (line["log_level"], line["detail"]) == ("warning", "The model went round in a loop.")


async def test_what_a_model_repeats_of_its_prompt_is_not_remembered(start: StartServer) -> None:
    """Small models do: sections are left out, and a reply that has part of one is no memory."""
    reply = ["Yes. <mem", "ories>\n- you promised\n</memories> I promise too. </memories>"]
    async with scripted_model(Script(reply=lambda _: reply)) as model:
        server = await start(llm_url=model.url, remember_replies="all")
        client = await server.session()
        await client.send("I promise to call you", "m1")
        events = await client.expect_all("response.done", "memory.stored")
        assert events["response.done"]["text"] == "Yes. I promise too. </memories>"
        contents = await owner_of(server.app.core).fetch("SELECT content FROM memories")
        assert [memory["content"] for memory in contents] == ["I promise to call you"]


async def test_a_session_without_a_model_says_so(start: StartServer) -> None:
    """`model` is null: the offline model answers."""
    client = await (await start()).connect()
    opened = await client.open_session("wren", user_id="ana")
    assert opened["model"] is None


@pytest.mark.parametrize(
    "before", [["<think>\n", "Ana greets me.", "\n</think>", "\n\n"], ["**", "Wren", ":**", " "]]
)
async def test_reasoning_and_the_label_of_a_model_are_neither_sent_nor_stored(
    start: StartServer, before: list[str]
) -> None:
    """Neither in deltas, nor in the whole reply, nor in the turns."""
    async with scripted_model(Script(reply=lambda _: [*before, "Hello", " Ana."])) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello", "m1")
        delta = await client.expect("response.output_text.delta")
        done = await client.expect("response.done")
        assert (delta["delta"], done["text"]) == ("Hello", "Hello Ana.")
        assert ("companion", "Hello Ana.") in await stored_turns(await server.connect())


@pytest.mark.parametrize("tail", ["Hello Ana.", ""], ids=["in the same piece", "in a later piece"])
async def test_thinking_without_an_opening_tag_is_no_part_of_the_first_reply(
    start: StartServer, tail: str
) -> None:
    """It was streamed before that was known; what is done and stored begins after the mark."""
    thinking = ["Ana greets me.", f"\n</think>\n\n{tail}", "" if tail else "Hello Ana."]
    async with scripted_model(Script(reply=lambda _: thinking)) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        for number in range(2):
            await client.send("Hello", f"m{number}")
            done = await client.expect("response.done")
            assert (done["status"], done["text"]) == ("completed", "Hello Ana.")
        stored = await stored_turns(await server.connect())
        assert stored == [("user", "Hello"), ("companion", "Hello Ana.")] * 2


async def test_what_cannot_be_stored_is_left_out_of_a_reply(start: StartServer) -> None:
    """NUL, and half of a character whose other half never comes; two halves are a character."""
    words = ["\0", "Hel\0lo", " \ud83d", "\ude00", "\udc00 there\ud83d", "."]
    async with scripted_model(Script(reply=lambda _: words)) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("completed", "Hello 😀 there.")
        assert await stored_turns(await server.connect()) == [
            ("user", "Hello"),
            ("companion", "Hello 😀 there."),
        ]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", "failed"),
        ("data: [DONE]\n\n", "completed"),
        (chunk_line("", "stop"), "completed"),
        ("data: [DONE]", "completed"),
        (chunk_line("", ""), "failed"),
        (chunk_line("", "error") + "data: [DONE]\n\n", "failed"),
        (chunk_line("", "abort"), "failed"),
        ('data: {"error": "boom"}\n\ndata: [DONE]\n\n', "failed"),
        ('data: {"choices": [{"delta": {"content": " ag', "failed"),
        ("data: [DON", "failed"),
    ],
)
async def test_a_stream_that_does_not_say_that_it_is_complete_is_not(
    start: StartServer, end: str, status: str
) -> None:
    """By a finish reason that is no failure, or an end mark; the text that was sent stays."""
    body = chunk_line("Take the left") + chunk_line(" road and never") + end
    async with scripted_model(Script(body=body)) as model:
        server = await start(llm_url=model.url)
        client = await server.session()
        await client.send("Which road?")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == (status, "Take the left road and never")
        assert (done.get("error") or {}).get("code") == (
            "model_broken" if status == "failed" else None
        )


async def test_the_log_says_of_a_failed_reply_what_to_do(start: StartServer) -> None:
    """As a warning with its code, durations and companion; the player is told none of it."""
    script = Script(reply=lambda _: ["<think>", "Hm. "] * 3)  # thinks until its limit is reached
    with capture_logs() as logged:
        async with scripted_model(script) as model:
            client = await (await start(llm_url=model.url, llm_model="small")).session()
            await client.send("A secret of mine", "m1")
            done = await client.expect("response.done")
    (line,) = [line for line in logged if line["event"] == "response.done"]
    assert done["status"] == "failed"
    assert done["error"]["code"] == line["code"] == "model_broken"
    assert line["log_level"] == "warning"
    assert (line["companion"], line["model"]) == ("wren", "small")
    assert line["first_token_ms"] is None
    assert line["total_ms"] >= 0
    assert "thought aloud" in line["detail"]
    assert "thought aloud" not in done["error"]["message"]
    assert "secret" not in repr(logged)
