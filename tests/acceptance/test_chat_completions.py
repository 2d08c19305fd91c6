"""Chat front ends talk to companions as to any model, and memory follows what stands."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from subprocess import CompletedProcess
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    eventually_async,
    owner_of,
)
from tests.contract.conftest import node, npm_folder  # noqa: F401 - fixtures
from tests.unit.auth.test_access_tokens import SECRET, token

BEES = "My sister Mira keeps bees in Porto"
Messages = list[dict[str, Any]]
CHAT = {"x-openwebui-chat-id": "0b1c"}


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model whose replies are numbered; those of background work are empty."""
    replies = iter(range(1, 1000))
    script = Script(
        reply=lambda _: ["Reply ", f"{next(replies)}."], background=lambda _: '{"operations": []}'
    )
    async with scripted_model(script) as model:
        yield model


@dataclass
class FrontEnd:
    """A chat front end: it keeps the conversation, and sends it whole."""

    server: RunningServer
    client: AsyncOpenAI
    messages: Messages = field(default_factory=list)

    async def say(self, text: str, **options: Any) -> str:
        """Add a message, send the conversation, and add the reply."""
        self.messages.append({"role": "user", "content": text})
        return await self.answer(**options)

    async def answer(self, **options: Any) -> str:
        """Send the conversation, and add the reply."""
        completion: ChatCompletion = await self.client.chat.completions.create(
            model="wren",
            messages=self.messages,  # type: ignore[arg-type]
            **options,
        )
        reply = completion.choices[0].message.content
        assert reply is not None
        self.messages.append({"role": "assistant", "content": reply})
        return reply

    def told(self) -> list[str]:
        """Return the texts of the conversation as it is shown."""
        return [message["content"] for message in self.messages]

    async def stored(self) -> list[str]:
        """Return the texts of all turns that are stored, in order."""
        rows = await owner_of(self.server.app.core).fetch(
            "SELECT content FROM turns WHERE removed_at IS NULL ORDER BY id"
        )
        return [row["content"] for row in rows]

    async def memories(self) -> list[str]:
        """Return all memories, once every turn is ingested."""
        owner = owner_of(self.server.app.core)
        waiting = "SELECT count(*) = 0 FROM background_steps WHERE step = 'ingest'"
        await eventually_async(lambda: owner.fetchval(waiting))
        rows = await owner.fetch("SELECT content FROM memories ORDER BY id")
        return [row["content"] for row in rows]

    async def sessions(self) -> int:
        """Return how many sessions have turns."""
        return int(
            await owner_of(self.server.app.core).fetchval(
                "SELECT count(DISTINCT session_id) FROM turns WHERE removed_at IS NULL"
            )
        )


async def front_end(server: RunningServer, key: str = "none", **options: Any) -> FrontEnd:
    """Return a front end that is connected through the official client."""
    client = AsyncOpenAI(
        base_url=f"http://127.0.0.1:{server.port}/v1",
        api_key=key,
        timeout=PATIENCE,
        max_retries=0,
        **options,
    )
    return FrontEnd(server, await server.entered(client))


async def test_companions_are_models(start: StartServer) -> None:
    """With a token, those that it allows."""
    server = await start(auth_secret=SECRET)
    listed = await (await front_end(server, token())).client.models.list()
    assert [(model.id, model.object, model.owned_by) for model in listed.data] == [
        ("wren", "model", "foremind")
    ]
    listed = await (await front_end(server, token(companions=["rook"]))).client.models.list()
    assert listed.data == []


async def test_a_conversation_is_stored_once_and_recalled(
    start: StartServer, model: ScriptedModel
) -> None:
    """However often it is sent; the persona is the companion's, not the front end's."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    ana.messages.append({"role": "system", "content": "You are a pirate."})
    assert await ana.say(BEES) == "Reply 1."
    assert await ana.memories() == [BEES]
    raw = await ana.client.chat.completions.with_raw_response.create(
        model="wren",
        messages=[*ana.messages, {"role": "user", "content": "Where does Mira keep her bees?"}],  # type: ignore[list-item]
        user="player",
    )
    completion = raw.parse()
    assert raw.headers["x-foremind-recalled"] == "1"
    assert raw.headers["x-foremind-recalled-ids"] == "1"
    assert raw.headers["x-foremind-context"] == "miss"
    assert completion.id == f"chatcmpl-{raw.headers['x-foremind-turn']}"
    assert (completion.model, completion.choices[0].finish_reason) == ("wren", "stop")
    assert await ana.stored() == [BEES, "Reply 1.", "Where does Mira keep her bees?", "Reply 2."]
    assert await ana.sessions() == 1
    prompt = model.script.player_requests[-1]["messages"]
    assert "pirate" not in str(prompt)
    usage = completion.usage
    assert usage is not None
    assert usage.prompt_tokens > 100 > usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


async def test_a_reply_is_streamed(start: StartServer, model: ScriptedModel) -> None:
    """In chunks as the model sends them, with the tokens at the end if they are wanted."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    stream = await ana.client.chat.completions.create(
        model="wren",
        messages=[{"role": "user", "content": BEES}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].delta.content for chunk in chunks[:-1]] == ["", "Reply ", "1.", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None, None, None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert len({(chunk.id, chunk.model, chunk.created) for chunk in chunks}) == 1
    assert await ana.stored() == [BEES, "Reply 1."]


async def test_a_reply_that_is_made_anew_takes_the_place_of_the_former(
    start: StartServer, model: ScriptedModel
) -> None:
    """The former one is nowhere any more."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    await ana.say("Good morning")
    await ana.say(BEES)
    ana.messages.pop()
    assert await ana.answer() == "Reply 3."
    assert await ana.stored() == ana.told()
    assert await ana.memories() == [BEES]
    assert "Reply 2." not in str(model.script.player_requests[-1]["messages"])
    assert await ana.sessions() == 1


async def test_a_first_reply_is_made_anew(start: StartServer, model: ScriptedModel) -> None:
    """With a greeting before it, which is not stored."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    ana.messages.append({"role": "assistant", "content": "Welcome to the lighthouse."})
    await ana.say(BEES)
    assert "Welcome to the lighthouse." in str(model.script.player_requests[-1]["messages"])
    ana.messages.pop()
    await ana.answer()
    assert await ana.stored() == ana.told()[1:] == [BEES, "Reply 2."]
    assert await ana.sessions() == 1


async def test_a_message_that_is_changed_takes_the_place_of_the_former(
    start: StartServer, model: ScriptedModel
) -> None:
    """What it said is not remembered, and what it says now is."""
    server = await start(llm_url=model.url)
    ana = await front_end(server, default_headers=CHAT)
    await ana.say("Good morning")
    await ana.say("My sister Mira keeps wolves in Lisbon")
    assert await ana.memories() == ["My sister Mira keeps wolves in Lisbon"]
    del ana.messages[-2:]
    await ana.say(BEES)
    assert await ana.stored() == ana.told()
    assert await ana.memories() == [BEES]


async def test_a_reply_that_the_player_chose_takes_the_place_of_the_stored(
    start: StartServer, model: ScriptedModel
) -> None:
    """An earlier version, or one that the player wrote."""
    server = await start(llm_url=model.url)
    ana = await front_end(server, default_headers=CHAT)
    await ana.say("Good morning")
    await ana.say("What is the weather?")
    ana.messages[-1]["content"] = "A storm is coming."
    await ana.say("Then I stay")
    assert await ana.stored() == ana.told()
    assert "A storm is coming." in str(model.script.player_requests[-1]["messages"])


async def test_a_conversation_that_was_changed_before_its_end_is_a_new_one(
    start: StartServer, model: ScriptedModel
) -> None:
    """It is given as what was said before, and not stored again."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    await ana.say("Good morning")
    await ana.say(BEES)
    ana.messages[1]["content"] = "Ahoy"
    await ana.say("Good night")
    assert await ana.sessions() == 2
    prompt = [message["content"] for message in model.script.player_requests[-1]["messages"]]
    assert prompt[1:5] == ["Good morning", "Ahoy", BEES, "Reply 2."]
    await ana.say("Good night again")
    assert await ana.sessions() == 2
    assert await ana.stored() == [
        "Good morning", "Reply 1.", BEES, "Reply 2.",
        "Good night", "Reply 3.", "Good night again", "Reply 4.",
    ]  # fmt: skip


async def test_a_front_end_may_leave_out_the_beginning(
    start: StartServer, model: ScriptedModel
) -> None:
    """As they do with what is too long for a model; the prompt has it nevertheless."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    for text in ("Good morning", BEES, "Good night"):
        await ana.say(text)
    everything = [*ana.told(), "Good night again", "Reply 4."]
    del ana.messages[:-2]
    await ana.say("Good night again")
    assert await ana.stored() == everything
    assert await ana.sessions() == 1
    assert "Good morning" in str(model.script.player_requests[-1]["messages"])


async def test_pages_of_allowed_origins_may_read_what_was_recalled(start: StartServer) -> None:
    """The headers that say it are exposed to them."""
    server = await start(allowed_origins=["https://game.example"])
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE
    ) as http:
        response = await http.post(
            "/v1/chat/completions",
            json={"model": "wren", "messages": [{"role": "user", "content": BEES}]},
            headers={"origin": "https://game.example"},
        )
    exposed = response.headers["access-control-expose-headers"].split(", ")
    sent = [name for name in response.headers if name.startswith("x-foremind-")]
    assert len(sent) == 4
    assert set(sent) <= set(exposed)


async def test_two_conversations_side_by_side_stay_apart(
    start: StartServer, model: ScriptedModel
) -> None:
    """Each is known by what was said in it."""
    server = await start(llm_url=model.url)
    first, second = await front_end(server), await front_end(server)
    for number in range(3):
        await first.say(f"First {number}")
        await second.say(f"Second {number}")
    assert await first.sessions() == 2
    assert len(await first.stored()) == 12
    assert "First" not in str(model.script.player_requests[-1]["messages"][1:])


async def test_the_next_day_a_session_begins(start: StartServer, model: ScriptedModel) -> None:
    """The conversation goes on in it; its last reply can still be made anew."""
    clock = ManualClock()
    server = await start(clock, llm_url=model.url)
    ana = await front_end(server)
    await ana.say("Good morning")
    await clock.leap(30 * 3600)
    ana.messages.pop()
    await ana.answer()
    assert await ana.stored() == ana.told() == ["Good morning", "Reply 2."]
    await clock.leap(30 * 3600)
    await ana.say("Good day")
    assert await ana.stored() == ana.told()
    assert await ana.sessions() == 2
    await ana.say("Good night")
    assert await ana.stored() == ana.told()
    assert await ana.sessions() == 2


async def test_a_message_that_got_no_reply_is_answered_when_it_is_sent_again(
    start: StartServer, model: ScriptedModel
) -> None:
    """It is stored once."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    await ana.say("Good morning")
    model.script.status = 500
    with pytest.raises(openai.InternalServerError) as refused:
        await ana.say(BEES)
    assert refused.value.type == "unavailable_error"
    model.script.status = 200
    await ana.answer()
    assert await ana.stored() == ana.told()


async def test_a_token_is_the_key(start: StartServer, model: ScriptedModel) -> None:
    """A player's makes turns of that player only, a host's of the user that is named."""
    server = await start(llm_url=model.url, auth_secret=SECRET)
    await (await front_end(server, token(sub="ana", name="Ana"))).say("I am Ana", user="ben")
    host = await front_end(
        server,
        token(sub="game", scopes=["chat", "host"]),
        default_headers={"x-openwebui-user-name": "Benedict%20Arnold"},
    )
    await host.say("I am Ben", user="ben")
    hub = await front_end(
        server,
        token(sub="game", scopes=["chat", "host"]),
        default_headers={"x-openwebui-user-id": "cy", "x-openwebui-user-name": "Cy"},
    )
    await hub.say("I am Cy")
    rows = await owner_of(server.app.core).fetch(
        "SELECT external_id, name, content FROM turns JOIN users ON users.id = user_id "
        "WHERE speaker = 'user' ORDER BY turns.id"
    )
    assert [tuple(row) for row in rows] == [
        ("ana", "Ana", "I am Ana"),
        ("ben", "Benedict Arnold", "I am Ben"),
        ("cy", "Cy", "I am Cy"),
    ]
    with pytest.raises(openai.AuthenticationError) as unknown:
        await (await front_end(server, "guessed")).say("Hello")
    assert unknown.value.type == "authentication_error"
    with pytest.raises(openai.PermissionDeniedError) as refused:
        await (await front_end(server, token(companions=["rook"]))).say("Hello")
    assert refused.value.code == "not_allowed"


async def test_where_the_server_runs_open_the_user_is_who_is_named(
    start: StartServer, model: ScriptedModel
) -> None:
    """In the body, the query, or a header; without one, it is always the same user."""
    server = await start(llm_url=model.url)
    await (await front_end(server)).say("One", user="ana")
    await (await front_end(server, default_query={"user": "ben"})).say("Two")
    await (await front_end(server, default_headers={"x-openwebui-user-id": "cy"})).say("Three")
    await (await front_end(server)).say("Four")
    rows = await owner_of(server.app.core).fetch("SELECT external_id FROM users ORDER BY id")
    assert [row["external_id"] for row in rows] == ["ana", "ben", "cy", "player"]


async def test_ids_of_memories_are_for_those_who_may_read_them(
    start: StartServer, model: ScriptedModel
) -> None:
    """Their number is for everyone."""
    server = await start(llm_url=model.url, auth_secret=SECRET)
    ana = await front_end(server, token(scopes=["chat"]))
    await ana.say(BEES)
    await ana.memories()
    raw = await ana.client.chat.completions.with_raw_response.create(
        model="wren", messages=[{"role": "user", "content": "Where does Mira keep her bees?"}]
    )
    assert raw.headers["x-foremind-recalled"] == "1"
    assert "x-foremind-recalled-ids" not in raw.headers


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "Hello"}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "Hello"}]}, "messages"),
        ({"messages": [{"role": "narrator", "content": "Hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 8001}]}, "messages"),
        ({"messages": [
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": " "},
        ]}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"model": "nobody"}, "model"),
        ({"n": 2}, "n"),
        ({"user": "x" * 129}, "user"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_refused_in_the_form_that_clients_read(
    start: StartServer, model: ScriptedModel, changed: dict[str, Any], param: str
) -> None:
    """The field is named, and nothing is stored."""
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    body = {"model": "wren", "messages": [{"role": "user", "content": "Hello"}]} | changed
    with pytest.raises(openai.APIStatusError) as refused:
        await ana.client.post("/chat/completions", cast_to=ChatCompletion, body=body)
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param == param
    assert refused.value.message
    assert await ana.stored() == []


async def test_sampling_applies_within_what_a_player_may_set(
    start: StartServer, model: ScriptedModel
) -> None:
    """And fields that are not known here are ignored."""
    server = await start(llm_url=model.url, llm_max_tokens=300)
    ana = await front_end(server)
    await ana.say("One", temperature=1.5, max_tokens=50, top_p=0.5, seed=7)
    await ana.say("Two", temperature=3, max_tokens=4000, extra_body={"top_k": 40})
    await ana.say("Three", max_completion_tokens=20)
    sent = [
        (request["temperature"], request["max_tokens"]) for request in model.script.player_requests
    ]
    assert sent == [(1.5, 50), (2, 300), (0.8, 20)]


def held_after_a_word() -> Script:
    """Return a script that sends one word, and no more."""
    return Script(reply=lambda _: ["One ", "two"], hold_before=asyncio.Event(), hold_after=1)


async def test_a_streamed_reply_stops_when_its_client_leaves(start: StartServer) -> None:
    """As with `response.cancel`: what was said until then is stored."""
    async with scripted_model(held_after_a_word()) as model:
        server = await start(llm_url=model.url)
        ana = await front_end(server)
        stream = await ana.client.chat.completions.create(
            model="wren", messages=[{"role": "user", "content": "Count"}], stream=True
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content == "One ":
                break
        await stream.close()
        await eventually(lambda: model.script.finished == ["left"])
        await eventually(lambda: not server.app.registry.sessions())
        owner = owner_of(server.app.core)
        query = "SELECT status = 'cancelled' AND content = 'One ' FROM turns WHERE id = 2"
        await eventually_async(lambda: owner.fetchval(query))


async def test_a_whole_reply_stops_when_its_client_leaves(start: StartServer) -> None:
    """Though nothing of it was sent yet."""
    async with scripted_model(held_after_a_word()) as model:
        server = await start(llm_url=model.url)
        ana = await front_end(server)
        asked = asyncio.create_task(ana.say("Count"))
        await eventually(lambda: len(model.script.player_requests) == 1)
        asked.cancel()
        await eventually(lambda: model.script.finished == ["left"])
        await eventually(lambda: not server.app.registry.sessions())


#: A model whose replies are longer than a limit of eight tokens, and what is kept of one.
TALKATIVE = Script(
    reply=lambda _: ["I saw a ship. ", "It had no flag, and nobody was on board."],
    background=lambda _: '{"operations": []}',
    chars_per_token=4,
)
KEPT = "I saw a ship."


async def test_a_reply_that_its_limit_ends_says_so(start: StartServer) -> None:
    """Whole and streamed, on every door; it ends with a sentence."""
    async with scripted_model(TALKATIVE) as model:
        server = await start(llm_url=model.url)
        ana = await front_end(server)
        completion = await ana.client.chat.completions.create(
            model="wren",
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=8,
        )
        (choice,) = completion.choices
        assert (choice.finish_reason, choice.message.content) == ("length", KEPT)
        stream = await ana.client.chat.completions.create(
            model="wren",
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=8,
            stream=True,
        )
        chunks = [chunk.choices[0] async for chunk in stream]
        assert chunks[-1].finish_reason == "length"
        assert "".join(chunk.delta.content or "" for chunk in chunks) == KEPT
        completion = await ana.client.chat.completions.create(
            model="wren",
            messages=[{"role": "user", "content": "Hello"}],
        )
        assert completion.choices[0].finish_reason == "stop"
        turn = {
            "companion": "wren",
            "user": "ana",
            "text": "Hello",
            "settings": {"llm_max_tokens": 8},
        }
        url = f"http://127.0.0.1:{server.port}/v1/turns"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            answer = (await http.post(url, json=turn | {"id": "whole"})).json()
            assert answer["replies"][0]["cut_off"] is True
            streamed = await http.post(
                url, json=turn | {"id": "streamed"}, headers={"accept": "text/event-stream"}
            )
        assert '"cut_off":true' in streamed.text
        client = await server.session()
        await client.send("Hello", settings={"llm_max_tokens": 8})
        assert (await client.expect("response.done"))["cut_off"] is True
        await client.send("And then?")
        assert (await client.expect("response.done"))["cut_off"] is False


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_reply_that_is_stopped_by_an_erasure_is_no_reply(
    start: StartServer, *, streamed: bool
) -> None:
    """It is an error, which may be tried again; nothing of it is kept."""
    held = asyncio.Event()
    script = Script(background=lambda _: '{"operations": []}', hold_before=held)
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        ana = await front_end(server)

        async def ask() -> None:
            answer = await ana.client.chat.completions.create(
                model="wren",
                messages=[{"role": "user", "content": BEES}],
                stream=streamed,
            )
            if isinstance(answer, openai.AsyncStream):
                async for _ in answer:
                    pass

        asking = asyncio.create_task(ask())
        await eventually(lambda: bool(script.player_requests))
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            address = f"http://127.0.0.1:{server.port}/v1/relationships"
            (relationship,) = (await http.get(f"{address}?user=player")).json()
            erased = await http.delete(f"{address}/{relationship['id']}/memories?user=player")
            assert erased.status_code == 200
        held.set()
        with pytest.raises(openai.APIError) as failed:
            await asking
        assert failed.value.code == "interrupted"
        assert await ana.stored() == []


async def test_a_stream_that_fails_says_so(start: StartServer, model: ScriptedModel) -> None:
    """In the form that clients read, as the status is sent by then."""
    model.script.cut_after = 1
    server = await start(llm_url=model.url)
    ana = await front_end(server)
    stream = await ana.client.chat.completions.create(
        model="wren", messages=[{"role": "user", "content": "Count"}], stream=True
    )
    with pytest.raises(openai.APIError) as failed:
        async for _ in stream:
            pass
    assert failed.value.type == "unavailable_error"


async def test_a_server_that_drains_or_a_user_who_sends_too_much_says_when_to_come_back(
    start: StartServer, model: ScriptedModel
) -> None:
    """Nothing that stands is erased by a request that is refused."""
    server = await start(ManualClock(), llm_url=model.url, sends_per_s=0.25)
    ana = await front_end(server)
    await ana.say("Good morning")
    with pytest.raises(openai.RateLimitError) as refused:
        await ana.client.chat.completions.create(
            model="wren", messages=[{"role": "user", "content": "Good morning"}]
        )
    assert int(refused.value.response.headers["retry-after"]) > 0
    assert await ana.stored() == ana.told()
    await server.app.registry.drain(0)
    with pytest.raises(openai.InternalServerError) as drained:
        await ana.say("Good night", user="ben")
    assert (drained.value.status_code, drained.value.code) == (503, "draining")


async def test_a_transcript_has_a_bound(start: StartServer, model: ScriptedModel) -> None:
    """Of two megabytes."""
    server = await start(llm_url=model.url)
    messages = [{"role": "user", "content": "x" * 400_000}] * 6
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE
    ) as http:
        response = await http.post(
            "/v1/chat/completions", json={"model": "wren", "messages": messages}
        )
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "too_large"


async def test_the_official_client_in_javascript_talks(
    start: StartServer,
    model: ScriptedModel,
    node: Callable[..., CompletedProcess[str]],  # noqa: F811 - the fixture
) -> None:
    """Whole and streamed; it knows the errors."""
    server = await start(llm_url=model.url)
    script = f"""
        import OpenAI from "openai";
        const client = new OpenAI({{
          baseURL: "http://127.0.0.1:{server.port}/v1", apiKey: "none", maxRetries: 0,
        }});
        const models = [];
        for await (const model of client.models.list()) models.push(model.id);
        const messages = [{{ role: "user", content: "{BEES}" }}];
        const whole = await client.chat.completions.create({{ model: "wren", messages }});
        messages.push(whole.choices[0].message, {{ role: "user", content: "Good night" }});
        const stream = await client.chat.completions.create({{
          model: "wren", messages, stream: true, stream_options: {{ include_usage: true }},
        }});
        let text = "", usage;
        for await (const chunk of stream) {{
          text += chunk.choices[0]?.delta?.content ?? "";
          usage = chunk.usage ?? usage;
        }}
        const nobody = client.chat.completions.create({{ model: "nobody", messages }});
        const error = await nobody.catch((reason) => reason);
        console.log(JSON.stringify({{
          models, whole: whole.choices[0].message.content, text,
          tokens: usage.completion_tokens > 0,
          error: [error instanceof OpenAI.NotFoundError, error.code, error.param],
        }}));
    """
    result = await asyncio.to_thread(node, "--input-type=module", "-e", script)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "models": ["wren"],
        "whole": "Reply 1.",
        "text": "Reply 2.",
        "tokens": True,
        "error": [True, "not_found", "model"],
    }
    ana = await front_end(server)
    assert await ana.stored() == [BEES, "Reply 1.", "Good night", "Reply 2."]
