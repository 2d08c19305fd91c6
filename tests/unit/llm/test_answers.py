"""What a model server answers is understood, however it says it; what it refuses is learnt."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from foremind.background.prompts import EpisodesAnswer, NotesAnswer, SummaryAnswer
from foremind.domain.companion import CompanionSettings
from foremind.domain.errors import ModelServerError, UnusableAnswer
from foremind.domain.policy import policy_for
from foremind.domain.settings import load_settings
from foremind.llm.chat_model import RestartedText
from foremind.llm.model_selection import ChatModels
from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.prompt.layout import Message
from foremind.llm.response_format import FORMS, response_format, schema_of
from foremind.llm.stream_events import StreamEnding, StreamParser
from foremind.llm.structured_output import ask
from foremind.memory.importance_rating import Rating
from foremind.testing.model_server import Manner, Script, chunk_line, in_background, scripted_model

ASKED: list[Message] = [
    {"role": "system", "content": "Summarise."},
    {"role": "user", "content": "She has a boat."},
]
LINES = json.dumps({"lines": ["She has a boat.", "She sails."]})


@asynccontextmanager
async def server(script: Script, **settings: Any) -> AsyncIterator[OpenAIChatModel]:
    """A model server as Foremind sees it."""
    async with scripted_model(script) as model:
        own = load_settings(llm_url=model.url, **settings)
        voices = ChatModels(own)
        found = voices.server_of(policy_for(CompanionSettings(), own).voice)
        assert found is not None
        try:
            yield found
        finally:
            await voices.close()


async def said(model: OpenAIChatModel, max_tokens: int = 50) -> tuple[list[str], str]:
    """The pieces of a reply, and what it is in the end."""
    pieces: list[str] = []
    whole: list[str] = []
    async with aclosing(model.write(ASKED, max_tokens, 0.7)) as written:
        async for piece in written:
            if isinstance(piece, RestartedText):
                whole.clear()
            pieces.append(piece)
            whole.append(piece)
    return pieces, "".join(whole)


@pytest.mark.parametrize("manner", ["stream", "whole", "whole as a stream", "message at the end"])
async def test_an_answer_is_understood_however_it_comes(manner: Manner) -> None:
    """Whole where a stream was asked for, or as the message of the last event."""
    script = Script(manner=manner, reasoning="I should greet her.", background=lambda _: LINES)
    async with server(script) as model:
        assert (await said(model))[1] == "Hello there."
        assert len((await ask(model, ASKED, SummaryAnswer, 50)).value.lines) == 2


async def test_what_is_thought_is_never_said() -> None:
    """Before the reply, in it, and, once that is known of a model, without a mark before it."""
    words = ["I should", " greet her.", "</thi", "nk>", "\n\n", "Hello", " there."]
    script = Script(reply=lambda _: words)
    async with server(script) as model:
        first, in_the_end = await said(model)
        assert in_the_end == "Hello there." and first[0] == "I should"  # nobody could know
        assert await said(model) == (["Hello", " there."], "Hello there.")
        script.reply = lambda _: ["Hello", " again."]
        assert (await said(model))[1] == "Hello again."
        script.reply = lambda _: ["Hi. ", "<think>What", " now?</think>", " Well?"]
        assert (await said(model))[1] == "Hi. Well?"
        script.letters_per_token, script.reply = 1, lambda _: ["I think and think"]
        with pytest.raises(ModelServerError, match="thought aloud"):
            await said(model, 9)


async def test_a_model_that_only_reasoned_is_told_from_one_that_is_silent() -> None:
    """The operator is told what to do."""
    async with server(Script(reply=lambda _: [""], reasoning="Hm.")) as model:
        with pytest.raises(ModelServerError, match="thought aloud"):
            await said(model)


async def test_the_strictest_form_that_a_server_takes_is_learnt() -> None:
    """From its refusals, once; another model of the same server is asked anew."""
    script = Script(background=lambda _: LINES, forms=("json_object",), form_status=422)
    async with server(script) as model:
        for _ in range(2):
            assert len((await ask(model, ASKED, SummaryAnswer, 50)).value.lines) == 2
        kinds = [each.get("response_format", {}).get("type") for each in script.asked]
        assert kinds == ["json_schema", "json_object", "json_object"]
        assert "schema" in script.asked[1]["response_format"]
        script.forms = ()
        assert len((await ask(model, ASKED, SummaryAnswer, 50)).value.lines) == 2
        assert "response_format" not in script.asked[-1]
        other = OpenAIChatModel(replace(model.options, model="other"), model._client)
        await ask(other, ASKED, SummaryAnswer, 50)
        assert len(script.asked) == 6 + len(FORMS)


async def test_a_refusal_that_is_not_about_the_form_teaches_nothing() -> None:
    """A prompt that is too long is refused in every form; one without a key in the first."""
    script = Script(background=lambda _: LINES, status=400)
    async with server(script) as model:
        with pytest.raises(ModelServerError):
            await ask(model, ASKED, SummaryAnswer, 50)
        assert len(script.requests) == len(FORMS)
        script.status = 401
        with pytest.raises(ModelServerError):
            await ask(model, ASKED, SummaryAnswer, 50)
        assert len(script.requests) == len(FORMS) + 1
        script.status = 200
        await ask(model, ASKED, SummaryAnswer, 50)
        assert script.asked[-1]["response_format"]["type"] == "json_schema"


async def test_the_second_try_shows_the_model_what_it_wrote_and_what_was_wrong() -> None:
    """In turn; after two there is none."""
    answers = iter(["I would rather not.", LINES, "No.", "No!"])
    script = Script(background=lambda _: next(answers))
    async with server(script) as model:
        assert (await ask(model, ASKED, SummaryAnswer, 50)).value.lines
        again = script.asked[1]["messages"]
        assert [each["role"] for each in again] == ["system", "user", "assistant", "user"]
        assert again[2]["content"] == "I would rather not."
        assert "no JSON" in again[3]["content"]
        with pytest.raises(UnusableAnswer):
            await ask(model, ASKED, NotesAnswer, 50)
        assert len(script.asked) == 4


async def test_what_was_written_before_the_limit_is_kept_and_said_to_be_a_part() -> None:
    """An answer that is whole is not."""
    long = json.dumps({"operations": [
        {"op": "ADD", "kind": "goal", "entry": f"Wants to see harbour {number}"}
        for number in range(9)
    ]})  # fmt: skip
    async with server(Script(background=lambda _: long, letters_per_token=4)) as model:
        part = await ask(model, ASKED, NotesAnswer, 100)
        assert part.cut_off and 3 < len(part.value.operations) < 9
        whole = await ask(model, ASKED, NotesAnswer, 300)
        assert not whole.cut_off and len(whole.value.operations) == 9


async def test_a_model_that_thinks_aloud_is_given_room_for_it() -> None:
    """As soon as that is known, and as far as its context goes."""
    thoughts = f"<think>{'Let me see. ' * 40}</think>{LINES}"
    script = Script(background=lambda _: thoughts, letters_per_token=4)
    async with server(script) as model:
        assert (await ask(model, ASKED, SummaryAnswer, 60, most_tokens=900)).value.lines
        assert [each["max_tokens"] for each in script.asked] == [60, 900]


async def test_a_request_of_the_background_makes_way_and_is_no_failure() -> None:
    """It is asked again once nobody waits; the reply finds the only slot free."""
    hold = asyncio.Event()
    script = Script(
        background=lambda _: LINES,
        holds=lambda chat: hold if in_background(chat) else None,
        slots=1,
    )
    async with server(script, llm_slots=1, llm_key="k") as model:
        times: list[int] = []
        asking = asyncio.create_task(
            ask(model, ASKED, SummaryAnswer, 50, on_displaced=lambda: times.append(1))
        )
        while not script.asked:
            await asyncio.sleep(0.01)
        assert (await said(model))[1] == "Hello there."  # the slot was given up, not waited for
        hold.set()
        assert len((await asking).value.lines) == 2
        assert times == [1] and len(script.asked) == 2


async def test_a_form_is_learnt_also_from_a_request_that_makes_way() -> None:
    """What the server refused before is not asked of it again, though no word came yet."""
    hold = asyncio.Event()
    script = Script(background=lambda _: LINES, holds=lambda _: hold, forms=())
    async with server(script, llm_slots=1, llm_key="k") as model:
        asking = asyncio.create_task(ask(model, ASKED, SummaryAnswer, 50))
        while len(script.asked) < len(FORMS):
            await asyncio.sleep(0.01)
        with model.slots.taken():
            hold.set()
        assert (await asking).value.lines
        assert len(script.asked) == len(FORMS) + 1


async def test_what_the_background_pushed_out_is_read_again_where_nobody_pays() -> None:
    """The prompt that was answered last; with a key nothing is."""
    for key, reads in ((None, True), ("k", False)):
        script = Script(background=lambda _: LINES)
        async with server(script, llm_key=key) as model:
            await said(model)
            await ask(model, [{"role": "user", "content": "Something else."}], SummaryAnswer, 50)
            await model._client.returning.finish()
            assert bool(script.read) is reads
            if reads:
                assert script.read[-1]["messages"] == ASKED


async def test_prose_stands_for_a_text_only_where_it_speaks_of_what_was_given() -> None:
    """What a model says in the place of an answer is none, whatever it has thought."""
    asked: list[Message] = [
        {"role": "user", "content": "Ana: I sail my boat to Porto. Ana: I am afraid of storms."}
    ]
    for prose, usable in (
        ("She sails a boat to Porto, and is afraid of storms.", True),
        ("I'm sorry, but I can't help with that request.", False),
        ("<think>Ana sails a boat to Porto.</think>As a language model I may not do it.", False),
    ):
        async with server(Script(background=lambda _, prose=prose: prose)) as model:  # type: ignore[misc]
            if usable:
                assert (await ask(model, asked, SummaryAnswer, 50)).value.lines == [prose]
            else:
                with pytest.raises(UnusableAnswer, match="speak of what was given"):
                    await ask(model, asked, SummaryAnswer, 50)


@pytest.mark.parametrize("shape", [NotesAnswer, SummaryAnswer, EpisodesAnswer, Rating])
def test_schemas_hold_nothing_that_servers_differ_on(shape: Any) -> None:
    """Types, fields, choices: no references, lengths or numbers of elements; all is required."""
    text = json.dumps(schema_of(shape))
    for word in ("$ref", "$defs", "Length", "Items", "imum", "default", "title"):
        assert word not in text
    assert schema_of(shape)["required"] == list(schema_of(shape)["properties"])
    assert schema_of(shape)["additionalProperties"] is False
    assert [(response_format(form, shape) or {}).get("type") for form in range(len(FORMS))] == [
        "json_schema", "json_object", "json_object", None,
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_events_are_read_however_they_are_cut(cut: int) -> None:
    """With any kind of line end, comments, several choices, parts, and nothing after the end."""
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
    events = StreamParser(ending)
    read = [
        piece for at in range(0, len(stream), cut) for piece in events.feed(stream[at : at + cut])
    ]
    assert "".join([*read, *events.end()]) == "Hello\u2028 ö!"
    assert ending.done and ending.cut_off
