"""New clients of OpenAI ask for responses: the official client gets them, whole and streamed."""

from typing import Any

import httpx2
import openai
import pytest

from foremind_eval.doubles.model_server import ScriptedModel, scripted_model
from tests.acceptance.test_chat_completions import (  # noqa: F401 - a fixture
    BEES,
    KEPT,
    TALKATIVE,
    front_end,
    model,
)
from tests.conftest import PATIENCE, StartServer


async def test_a_response_is_made_and_followed(start: StartServer, model: ScriptedModel) -> None:  # noqa: F811
    """By its id, or by the whole conversation; each turn is stored once, in one session."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    responses = ana.client.responses
    first = await responses.create(
        model="wren", input=BEES, instructions="You are a pirate.", metadata={"a": "b"}
    )
    assert (first.object, first.status, first.output_text) == ("response", "completed", "Reply 1.")
    assert (first.error, first.metadata, first.model) == (None, {"a": "b"}, "wren")
    assert first.usage is not None
    assert first.usage.input_tokens > 100 > first.usage.output_tokens > 0
    assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
    second = await responses.create(
        model="wren", input="And in winter?", previous_response_id=first.id, temperature=0.5
    )
    assert (second.output_text, second.previous_response_id) == ("Reply 2.", first.id)
    request = model.script.player_requests[-1]
    assert request["temperature"] == 0.5
    assert "pirate" not in str(request)
    said = [message["content"] for message in request["messages"][-3:]]
    assert said[0] == BEES
    assert said[1] == "Reply 1."
    conversation: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": BEES}]},
        *(item.model_dump() for item in first.output),
        {"role": "user", "content": "And in winter?"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"role": "assistant", "content": "Reply 2."},
        {"role": "user", "content": "Where is that?"},
    ]
    third = await responses.create(model="wren", input=conversation)
    assert third.output_text == "Reply 3."
    assert await ana.stored() == [
        BEES, "Reply 1.", "And in winter?", "Reply 2.", "Where is that?", "Reply 3."
    ]  # fmt: skip
    assert await ana.sessions() == 1
    assert await ana.memories() == [BEES]


async def test_a_response_is_streamed(start: StartServer, model: ScriptedModel) -> None:  # noqa: F811
    """In the events of OpenAI's, in order; the client puts the reply together."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    stream = await ana.client.responses.create(model="wren", input="Hello", stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "Reply 1."
    async with ana.client.responses.stream(model="wren", input="Again") as parsed:
        final = await parsed.get_final_response()
    assert (final.status, final.output_text) == ("completed", "Reply 2.")


async def test_a_response_that_its_limit_ends_is_incomplete(start: StartServer) -> None:
    """Whole and streamed, as OpenAI's is."""
    async with scripted_model(TALKATIVE) as talkative:
        server = await start(llm_url=talkative.url)
        responses = (await front_end(server)).client.responses
        response = await responses.create(model="wren", input="Hello", max_output_tokens=8)
        assert (response.status, response.output_text) == ("incomplete", KEPT)
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.to_dict()["output"][0]["status"] == "incomplete"  # type: ignore[index]
        stream = await responses.create(
            model="wren", input="Hello", max_output_tokens=8, stream=True
        )
        events = [event async for event in stream]
        assert events[-1].type == "response.incomplete"
        assert events[-1].response.output_text == KEPT
        response = await responses.create(model="wren", input="Hello")
        assert (response.status, response.incomplete_details) == ("completed", None)


async def test_what_is_not_to_be_stored_is_not_remembered(
    start: StartServer,
    model: ScriptedModel,  # noqa: F811
) -> None:
    """As turns that say `remember: false`."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    response = await ana.client.responses.create(model="wren", input=BEES, store=False)
    assert response.output_text == "Reply 1."
    assert response.to_dict()["store"] is False
    assert await ana.memories() == []


@pytest.mark.parametrize(
    ("request_fields", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"role": "pirate", "content": "x"}]}, "input[0].role"),
        ({"input": ""}, "input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
        ({"input": 3}, "input"),
        ({"model": "nobody"}, "model"),
        ({"previous_response_id": "resp_999"}, "previous_response_id"),
        ({"previous_response_id": "other"}, "previous_response_id"),
    ],
    ids=str,
)
async def test_what_is_not_supported_is_named(
    start: StartServer,
    request_fields: dict[str, Any],
    param: str,
) -> None:
    """In the form that clients read; nothing is stored."""
    server = await start()
    ana = await front_end(server)
    with pytest.raises(openai.APIStatusError) as refused:
        await ana.client.responses.create(**{"model": "wren", "input": "Hi", **request_fields})
    assert refused.value.status_code in (400, 404)
    assert refused.value.param == param
    assert param.partition("[")[0] in refused.value.message
    assert await ana.stored() == []


async def test_a_tool_that_need_not_be_used_is_ignored(start: StartServer) -> None:
    """As chat completions ignore what they do not know."""
    server = await start()
    body = {
        "model": "wren", "input": "Hi", "tools": [{"type": "web_search"}], "tool_choice": "auto",
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}, "include": [],
    }  # fmt: skip
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.post(f"http://127.0.0.1:{server.port}/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["tools"] == []
