"""Language model servers that never stop sending: each is hung up on, whatever it sends."""

import asyncio
from contextlib import aclosing

import pytest

from foremind.background.prompts import SummaryAnswer, for_summary
from foremind.domain.companion import CompanionSettings
from foremind.domain.errors import ModelServerError
from foremind.domain.policy import policy_for
from foremind.domain.settings import load_settings
from foremind.llm.model_selection import ChatModels
from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.structured_output import ask
from foremind.testing.flooding_model import AFTER_THE_END, FLOODS, Flood, flooding_model
from foremind.testing.model_server import Chat, in_background
from tests.acceptance.layers import world
from tests.conftest import StartServer, eventually

# What the flood itself ends, not the passing of time.
PATIENT = {"llm_token_timeout_s": 3600, "llm_reply_timeout_s": 3600}


def model_server(voices: ChatModels, url: str) -> OpenAIChatModel:
    """What asks the model server at `url`."""
    server = voices.server_of(
        policy_for(CompanionSettings(), load_settings(llm_url=url, **PATIENT)).voice
    )
    assert server is not None
    return server


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
async def test_whatever_never_stops_is_broken_off(flood: Flood) -> None:
    """For players, reading ahead and background work; the connection is closed each time."""
    async with flooding_model(flood) as model:
        voices = ChatModels(load_settings(llm_url=model.url, **PATIENT))
        server = model_server(voices, model.url)
        for number, max_tokens in enumerate((400, 1), 1):
            with pytest.raises(ModelServerError) as failure:
                written = server.write([{"role": "user", "content": "Hi"}], max_tokens, 0.5)
                async with aclosing(written) as pieces:
                    async for _ in pieces:
                        pass
            assert failure.value.code == "model_broken"
            await eventually(lambda: model.hung_up == number)  # noqa: B023
        with pytest.raises(ModelServerError) as failure:
            await ask(server, for_summary("", []), SummaryAnswer, 400)
        assert failure.value.code == "model_broken"
        assert model.requests == 3
        await eventually(lambda: model.hung_up == 3)
        await voices.close()


async def test_what_follows_the_end_of_a_reply_is_not_waited_for(start: StartServer) -> None:
    """The reply is whole; only the connection is not used again."""
    async with flooding_model(AFTER_THE_END) as model:
        client = await (await start(llm_url=model.url, **PATIENT)).session()
        await client.send("Hello")
        done = await client.expect("response.done")
        assert (done["status"], done["text"]) == ("completed", "Hello.")
        await eventually(lambda: model.hung_up == 1)


async def test_a_player_is_told_and_the_session_goes_on(start: StartServer) -> None:
    """An endless line fails one reply, by name."""
    async with flooding_model(FLOODS["a line"]) as model:
        client = await (await start(llm_url=model.url, **PATIENT)).session()
        for _ in range(2):
            await client.send("Hello")
            done = await client.expect("response.done")
            assert (done["status"], done["error"]["code"]) == ("failed", "model_broken")
            assert "more than a reply" in done["error"]["message"]


async def test_of_a_model_too_slow_to_end_its_answer_what_came_is_kept(start: StartServer) -> None:
    """It would be no faster another time."""
    begun = '{"operations": [{"op": "ADD", "kind": "other", "entry": "Has a goat"}, '

    def reply(body: Chat) -> list[str]:
        return [begun, '{"op": "ADD"'] if in_background(body) else ["Hello."]

    others = ["summary", "episodes", "topics", "hot", "profile", "opening", "questions"]
    async with world(start, model=True, layers_off=others, llm_reply_timeout_s=3.0) as w:
        assert w.model is not None
        w.model.script.background = None
        w.model.script.reply = reply
        w.model.script.hold_before, w.model.script.hold_after = asyncio.Event(), 1
        await w.talk("I have a goat")
        assert [record["content"] for record in await w.records("scratchpad")] == ["Has a goat"]
        metrics = w.server.app.core.metrics
        assert metrics.curated.labels("notes", "failed")._value.get() == 0
