"""Language model servers that never stop sending: the connection is closed, whatever they send."""

import asyncio
from contextlib import aclosing

import pytest

from foremind.app.configuration import load_settings
from foremind.background.prompts import SummaryAnswer, summary_prompt
from foremind.domain.errors import ModelServerError
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.llm.model_selection import ChatModels
from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.structured_output import request_answer
from foremind_eval.doubles.flooding_model import FLOOD_AFTER_DONE, FLOODS, Flood, flooding_model
from foremind_eval.doubles.model_server import Chat, is_background_request
from tests.acceptance.world import world
from tests.conftest import StartServer, eventually

# So that limits of size end the request, not timeouts.
PATIENT = {"llm_token_timeout_s": 3600, "llm_reply_timeout_s": 3600}


def model_server(chat_models: ChatModels, url: str) -> OpenAIChatModel:
    """Return the chat model of the server at `url`."""
    server = chat_models.model_server_for(
        policy_for(CompanionSettings(), load_settings(llm_url=url, **PATIENT)).chat_model
    )
    assert server is not None
    return server


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
async def test_endless_responses_are_aborted(flood: Flood) -> None:
    """Of replies, prefill and background requests; the connection is closed each time."""
    async with flooding_model(flood) as model:
        chat_models = ChatModels(load_settings(llm_url=model.url, **PATIENT))
        server = model_server(chat_models, model.url)
        for number, max_tokens in enumerate((400, 1), 1):
            with pytest.raises(ModelServerError) as failure:
                written = server.write([{"role": "user", "content": "Hi"}], max_tokens, 0.5)
                async with aclosing(written) as pieces:
                    async for _ in pieces:
                        pass
            assert failure.value.code == "model_broken"
            await eventually(lambda: model.disconnects == number)  # noqa: B023
        with pytest.raises(ModelServerError) as failure:
            await request_answer(server, summary_prompt("", []), SummaryAnswer, 400)
        assert failure.value.code == "model_broken"
        assert model.requests == 3
        await eventually(lambda: model.disconnects == 3)
        await chat_models.close()


async def test_a_reply_does_not_wait_for_what_follows_its_end(start: StartServer) -> None:
    """The reply is complete; only the connection is not reused."""
    async with flooding_model(FLOOD_AFTER_DONE) as model:
        client = await (await start(llm_url=model.url, **PATIENT)).session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("completed", "Hello.")
        await eventually(lambda: model.disconnects == model.requests)


async def test_an_endless_line_fails_only_the_reply(start: StartServer) -> None:
    """The error says why, and the session continues."""
    async with flooding_model(FLOODS["a line"]) as model:
        client = await (await start(llm_url=model.url, **PATIENT)).session()
        for _ in range(2):
            await client.send("Hello")
            done = await client.expect("response.done")
            assert (done["status"], done["error"]["code"]) == ("failed", "model_broken")


async def test_the_complete_part_of_a_timed_out_answer_is_kept(start: StartServer) -> None:
    """A slow model would be no faster at the next attempt."""
    partial_answer = '{"operations": [{"op": "ADD", "kind": "other", "entry": "Has a goat"}, '

    def reply(body: Chat) -> list[str]:
        return [partial_answer, '{"op": "ADD"'] if is_background_request(body) else ["Hello."]

    layers_off = ["summary", "episodes", "topics", "hot", "profile", "opening", "questions"]
    async with world(start, model=True, layers_off=layers_off, llm_reply_timeout_s=3.0) as w:
        assert w.model is not None
        w.model.script.background = None
        w.model.script.reply = reply
        w.model.script.hold_before, w.model.script.hold_after = asyncio.Event(), 1
        await w.talk("I have a goat")
        assert [record["content"] for record in await w.records("scratchpad")] == ["Has a goat"]
        metrics = w.server.app.core.runtime.metrics
        assert metrics.background_tasks.labels("notes", "failed")._value.get() == 0
