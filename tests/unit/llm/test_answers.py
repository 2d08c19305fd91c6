"""Responses of model servers in any form are understood; what a server refuses is remembered."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from foremind.app.configuration import load_settings
from foremind.background.prompts import EpisodesAnswer, NotesAnswer, SummaryAnswer
from foremind.domain.errors import ModelServerError, UnusableAnswer
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.llm.chat_model import RestartedText
from foremind.llm.completion_parser import StreamEnding, StreamParser
from foremind.llm.model_selection import ChatModels
from foremind.llm.openai_model import FORMS, OpenAIChatModel, response_format, schema_of
from foremind.llm.prompt.layout import Message
from foremind.llm.structured_output import request_answer
from foremind.memory.importance_rating import Rating
from foremind_eval.doubles.model_server import (
    ReplyMode,
    Script,
    chunk_line,
    is_background_request,
    scripted_model,
)
from tests.conftest import eventually

ASKED: list[Message] = [
    {"role": "system", "content": "Summarise."},
    {"role": "user", "content": "She has a boat."},
]
LINES = json.dumps({"lines": ["She has a boat.", "She sails."]})


@asynccontextmanager
async def server(script: Script, **settings: Any) -> AsyncIterator[OpenAIChatModel]:
    """A chat model on a scripted model server."""
    async with scripted_model(script) as model:
        own = load_settings(llm_url=model.url, **settings)
        chat_models = ChatModels(own)
        chat_server = chat_models.model_server_for(policy_for(CompanionSettings(), own).chat_model)
        assert chat_server is not None
        try:
            yield chat_server
        finally:
            await chat_models.close()


async def reply_of(model: OpenAIChatModel, max_tokens: int = 50) -> tuple[list[str], str]:
    """The pieces of a reply, and its final text."""
    pieces: list[str] = []
    parts: list[str] = []
    async with aclosing(model.write(ASKED, max_tokens, 0.7)) as written:
        async for piece in written:
            if isinstance(piece, RestartedText):
                parts.clear()
            pieces.append(piece)
            parts.append(piece)
    return pieces, "".join(parts)


@pytest.mark.parametrize("manner", ["stream", "whole", "whole as a stream", "message at the end"])
async def test_responses_are_understood_in_any_form(manner: ReplyMode) -> None:
    """As one document although a stream was requested, or as the message of the last event."""
    script = Script(reply_mode=manner, reasoning="I should greet her.", background=lambda _: LINES)
    async with server(script) as model:
        assert (await reply_of(model))[1] == "Hello there."
        assert len((await request_answer(model, ASKED, SummaryAnswer, 50)).value.lines) == 2


async def test_thinking_is_never_part_of_the_reply() -> None:
    """Before the reply, within it and, once known of a model, without an opening tag."""
    words = ["I should", " greet her.", "</thi", "nk>", "\n\n", "Hello", " there."]
    script = Script(reply=lambda _: words)
    async with server(script) as model:
        first, text = await reply_of(model)
        assert text == "Hello there." and first[0] == "I should"  # not known yet
        assert await reply_of(model) == (["Hello", " there."], "Hello there.")
        script.reply = lambda _: ["Hello", " again."]
        assert (await reply_of(model))[1] == "Hello again."
        script.reply = lambda _: ["Hi. ", "<think>What", " now?</think>", " Well?"]
        assert (await reply_of(model))[1] == "Hi. Well?"
        script.chars_per_token, script.reply = 1, lambda _: ["I think and think"]
        with pytest.raises(ModelServerError, match="thought aloud"):
            await reply_of(model, 9)


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        ('{"lines": ["She has a boat.", "', "brave, "),
        ('{"lines": ["She has a boat.", "Today is Thursday, 26 November 2026', ". "),
        ('{"lines": ["She has a boat."', ', "…"'),
        ('{"lines": ["She has a boat."', ', "It is my day, dear.",\n      "It is your day, dear."'),
    ],
)
async def test_an_answer_that_loops_is_ended(begins: str, goes_on: str) -> None:
    """What came before that is used; the model is free for others."""
    script = Script(reply=lambda _: [begins, *([goes_on] * 100_000)])
    async with server(script) as model:
        answer = await request_answer(model, ASKED, SummaryAnswer, 500_000)
        await eventually(lambda: script.finished == ["left"])
    assert answer.cut_off
    assert answer.value.lines[0] == "She has a boat."


async def test_a_reply_of_reasoning_only_has_its_own_error() -> None:
    """It tells the operator what to do."""
    async with server(Script(reply=lambda _: [""], reasoning="Hm.")) as model:
        with pytest.raises(ModelServerError, match="thought aloud"):
            await reply_of(model)


async def test_the_strictest_accepted_form_is_remembered() -> None:
    """After its refusals, once; another model of the same server starts from the strictest."""
    script = Script(
        background=lambda _: LINES, response_formats=("json_object",), unsupported_format_status=422
    )
    async with server(script) as model:
        for _ in range(2):
            assert len((await request_answer(model, ASKED, SummaryAnswer, 50)).value.lines) == 2
        forms = [chat.get("response_format", {}).get("type") for chat in script.background_requests]
        assert forms == ["json_schema", "json_object", "json_object"]
        assert "schema" in script.background_requests[1]["response_format"]
        script.response_formats = ()
        assert len((await request_answer(model, ASKED, SummaryAnswer, 50)).value.lines) == 2
        assert "response_format" not in script.background_requests[-1]
        other = OpenAIChatModel(replace(model.options, model="other"), model._client)
        await request_answer(other, ASKED, SummaryAnswer, 50)
        assert len(script.background_requests) == 6 + len(FORMS)


async def test_a_refusal_not_about_the_form_is_not_remembered() -> None:
    """A prompt that is too long is refused in every form; one without a key in the first."""
    script = Script(background=lambda _: LINES, status=400)
    async with server(script) as model:
        with pytest.raises(ModelServerError):
            await request_answer(model, ASKED, SummaryAnswer, 50)
        assert len(script.requests) == len(FORMS)
        script.status = 401
        with pytest.raises(ModelServerError):
            await request_answer(model, ASKED, SummaryAnswer, 50)
        assert len(script.requests) == len(FORMS) + 1
        script.status = 200
        await request_answer(model, ASKED, SummaryAnswer, 50)
        assert script.background_requests[-1]["response_format"]["type"] == "json_schema"


async def test_the_retry_shows_the_model_its_answer_and_the_problem() -> None:
    """As alternating messages; there is only one retry."""
    answers = iter(["I would rather not.", LINES, "No.", "No!"])
    script = Script(background=lambda _: next(answers))
    async with server(script) as model:
        assert (await request_answer(model, ASKED, SummaryAnswer, 50)).value.lines
        retry = script.background_requests[1]["messages"]
        assert [message["role"] for message in retry] == ["system", "user", "assistant", "user"]
        assert retry[2]["content"] == "I would rather not."
        assert "no JSON" in retry[3]["content"]
        with pytest.raises(UnusableAnswer):
            await request_answer(model, ASKED, NotesAnswer, 50)
        assert len(script.background_requests) == 4


async def test_a_truncated_answer_is_kept_and_marked_as_cut_off() -> None:
    """A complete answer is not marked."""
    long = json.dumps({"operations": [
        {"op": "ADD", "kind": "goal", "entry": f"Wants to see harbour {number}"}
        for number in range(9)
    ]})  # fmt: skip
    async with server(Script(background=lambda _: long, chars_per_token=4)) as model:
        part = await request_answer(model, ASKED, NotesAnswer, 100)
        assert part.cut_off and 3 < len(part.value.operations) < 9
        complete = await request_answer(model, ASKED, NotesAnswer, 300)
        assert not complete.cut_off and len(complete.value.operations) == 9


async def test_a_model_that_thinks_aloud_gets_more_tokens() -> None:
    """As soon as that is known, and as far as its context allows."""
    thoughts = f"<think>{'Let me see. ' * 40}</think>{LINES}"
    script = Script(background=lambda _: thoughts, chars_per_token=4)
    async with server(script) as model:
        assert (
            await request_answer(model, ASKED, SummaryAnswer, 60, available_tokens=900)
        ).value.lines
        assert [chat["max_tokens"] for chat in script.background_requests] == [60, 900]


async def test_a_preempted_background_request_is_repeated() -> None:
    """Once nobody waits; the reply finds the only slot free."""
    hold = asyncio.Event()
    script = Script(
        background=lambda _: LINES,
        hold_for=lambda chat: hold if is_background_request(chat) else None,
        slots=1,
    )
    async with server(script, llm_slots=1, llm_key="k") as model:
        preemptions: list[int] = []
        asking = asyncio.create_task(
            request_answer(
                model, ASKED, SummaryAnswer, 50, on_preempted=lambda: preemptions.append(1)
            )
        )
        while not script.background_requests:
            await asyncio.sleep(0.01)
        assert (await reply_of(model))[
            1
        ] == "Hello there."  # the slot was preempted, not waited for
        hold.set()
        assert len((await asking).value.lines) == 2
        assert preemptions == [1] and len(script.background_requests) == 2


async def test_forms_refused_before_a_preemption_are_remembered() -> None:
    """They are not tried again, although no answer has arrived yet."""
    hold = asyncio.Event()
    script = Script(background=lambda _: LINES, hold_for=lambda _: hold, response_formats=())
    async with server(script, llm_slots=1, llm_key="k") as model:
        asking = asyncio.create_task(request_answer(model, ASKED, SummaryAnswer, 50))
        while len(script.background_requests) < len(FORMS):
            await asyncio.sleep(0.01)
        with model.slots.foreground():
            hold.set()
        assert (await asking).value.lines
        assert len(script.background_requests) == len(FORMS) + 1


async def test_the_cache_is_restored_after_background_work_where_tokens_are_free() -> None:
    """With the last foreground prompt; not on a server with a key."""
    for key, reads in ((None, True), ("k", False)):
        script = Script(background=lambda _: LINES)
        async with server(script, llm_key=key) as model:
            await reply_of(model)
            await request_answer(
                model, [{"role": "user", "content": "Something else."}], SummaryAnswer, 50
            )
            await model._client.restoring.finish()
            assert bool(script.prefill_requests) is reads
            if reads:
                assert script.prefill_requests[-1]["messages"] == ASKED


async def test_prose_is_accepted_only_if_it_is_about_the_input() -> None:
    """A refusal is no answer, whatever the model has thought."""
    messages: list[Message] = [
        {"role": "user", "content": "Ana: I sail my boat to Porto. Ana: I am afraid of storms."}
    ]
    for prose, usable in (
        ("She sails a boat to Porto, and is afraid of storms.", True),
        ("I'm sorry, but I can't help with that request.", False),
        ("<think>Ana sails a boat to Porto.</think>As a language model I may not do it.", False),
    ):
        async with server(Script(background=lambda _, prose=prose: prose)) as model:  # type: ignore[misc]
            if usable:
                assert (await request_answer(model, messages, SummaryAnswer, 50)).value.lines == [
                    prose
                ]
            else:
                with pytest.raises(UnusableAnswer, match="speak of what was given"):
                    await request_answer(model, messages, SummaryAnswer, 50)


@pytest.mark.parametrize("shape", [NotesAnswer, SummaryAnswer, EpisodesAnswer, Rating])
def test_schemas_use_only_portable_keywords(shape: Any) -> None:
    """Types, fields, choices: no references, length or item limits; all fields are required."""
    text = json.dumps(schema_of(shape))
    for keyword in ("$ref", "$defs", "Length", "Items", "imum", "default", "title"):
        assert keyword not in text
    assert schema_of(shape)["required"] == list(schema_of(shape)["properties"])
    assert schema_of(shape)["additionalProperties"] is False
    assert [(response_format(form, shape) or {}).get("type") for form in range(len(FORMS))] == [
        "json_schema", "json_object", "json_object", None,
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_parsed_however_they_are_split(size: int) -> None:
    """With any line ending, comments, several choices, parts, and nothing after the end."""
    parts = '[{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "!"}]'
    stream = (
        "\ufeff: ping\r\n\r\nevent: x\r\n"
        + chunk_line("Hel").replace("\n", "\r\n")
        + chunk_line("lo\u2028 ö").replace("\n", "\r")
        + f'data: {{"choices": [{{"delta": {{"content": {parts}}}}}, null]}}\n\n'
        + 'data: {"choices": []}\n\ndata: null\n\n'
        + 'data: {"choices": [{"message": {"content": "Hello"},\ndata: "finish_reason": "length"}]}'
        + f"\n\ndata: [DONE]\n\n{chunk_line('more')}"
    ).encode()
    ending = StreamEnding()
    parser = StreamParser(ending)
    pieces = [
        piece
        for start in range(0, len(stream), size)
        for piece in parser.feed(stream[start : start + size])
    ]
    assert "".join([*pieces, *parser.end()]) == "Hello\u2028 ö!"
    assert ending.done and ending.cut_off
