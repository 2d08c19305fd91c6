"""A companion's emotions, and the sentences of its replies: on the socket and over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.settings.settings import Settings as ServerSettings
from foremind_client import Client, Conversation, Identity
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.test_turns import door_to
from tests.conftest import RunningServer, StartServer, owner_of

_WORDS = ["[ha", "ppy] You are", " back! Sit", " down. (cal", "m)", " The kettle is on."]
_TEXT = "You are back! Sit down. The kettle is on."
_EMOTIONS = ("calm", "happy", "angry")
_SENTENCES = [
    {"index": 0, "text": "You are back!", "emotion": "happy"},
    {"index": 1, "text": "Sit down.", "emotion": "happy"},
    {"index": 2, "text": "The kettle is on.", "emotion": "calm"},
]


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model that marks what it says."""
    async with scripted_model(Script(reply=lambda _: list(_WORDS))) as model:
        yield model


async def name_emotions(server: RunningServer, emotions: Sequence[str] = _EMOTIONS) -> None:
    """Let the example companion have emotions."""
    settings = CompanionSettings(emotions=tuple(emotions))
    await server.app.core.stores.companions.put(
        CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
    )


async def session(server: RunningServer, **wanted: Any) -> Client:
    """Open a session that states what it wants."""
    client = await server.connect()
    await client.open_session("wren", user_id="ana", name="Ana", **wanted)
    return client


async def events_of_reply(client: Client, text: str = "Hello") -> list[dict[str, Any]]:
    """Send a message, and return all events until its reply has ended."""
    await client.send(text)
    events = [await client.next_event()]
    while events[-1]["type"] != "response.done":
        events.append(await client.next_event())
    return events


def sentences_in(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was told of sentences."""
    names = ("index", "text", "emotion")
    spoken = [event for event in events if event["type"] == "response.sentence"]
    return [{name: event[name] for name in names if name in event} for event in spoken]


async def test_a_reply_has_emotions_apart_from_its_text(
    start: StartServer, model: ScriptedModel
) -> None:
    """In deltas, sentences, the whole text and what is stored; the prompt names the set once."""
    server = await start(llm_url=model.url)
    await name_emotions(server)
    client = await session(server, sentences=True)
    events = await events_of_reply(client)
    types = [event["type"] for event in events]
    assert types.index("message.accepted") < types.index("response.sentence")
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == _TEXT and not any("[" in delta or "(" in delta for delta in deltas)
    assert sentences_in(events) == _SENTENCES
    done = events[-1]
    assert (done["text"], done["emotion"]) == (_TEXT, "happy")
    stored = await owner_of(server.app.core).fetchval(
        "SELECT content FROM turns WHERE speaker = 'companion'"
    )
    assert stored == _TEXT
    *before, last = model.script.player_requests[-1]["messages"]
    assert last["content"].count("[calm] [happy] [angry]") == 1
    assert not any("[calm]" in message["content"] for message in before)
    await events_of_reply(client, "And now?")
    assert _TEXT in [message["content"] for message in model.script.player_requests[-1]["messages"]]


@pytest.mark.parametrize(
    ("opened_with", "update", "wanted"),
    [
        ({}, None, False),
        ({"sentences": True}, None, True),
        ({}, True, True),
        ({"sentences": True}, False, False),
    ],
)
async def test_sentences_are_sent_to_clients_that_ask(
    start: StartServer,
    model: ScriptedModel,
    opened_with: dict[str, Any],
    update: bool | None,
    wanted: bool,
) -> None:
    """By `session.open`, and by `session.update` from the next reply on."""
    server = await start(llm_url=model.url)
    client = await session(server, **opened_with)
    if update is not None:
        await client.send_raw({"type": "session.update", "sentences": update})
        await client.expect("session.updated")
    spoken = sentences_in(await events_of_reply(client))
    assert bool(spoken) == wanted
    if wanted:  # no emotions are named: what looks like one is text
        assert spoken[0] == {"index": 0, "text": "[happy] You are back!"}


async def test_without_emotions_nothing_is_different(
    start: StartServer, model: ScriptedModel
) -> None:
    """Neither the prompt nor the reply nor an event, to the byte."""
    server = await start(llm_url=model.url)
    client = await session(server)
    events = await events_of_reply(client)
    text = "".join(_WORDS)
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == _WORDS and events[-1]["text"] == text
    assert "emotion" not in events[-1]
    without = model.script.player_requests[-1]["messages"]
    assert "brackets" not in without[-1]["content"]


async def test_a_sentence_is_sent_as_soon_as_it_is_whole(start: StartServer) -> None:
    """While the model is still writing the next."""
    script = Script(
        reply=lambda _: ["Hello there.", " How", " are you?"],
        hold_before=asyncio.Event(),
        hold_after=2,
    )
    async with scripted_model(script) as model:
        client = await session(await start(llm_url=model.url), sentences=True)
        await client.send("Hello")
        assert (await client.expect("response.sentence"))["text"] == "Hello there."
        assert script.hold_before is not None
        script.hold_before.set()
        assert (await client.expect("response.sentence"))["text"] == "How are you?"
        assert (await client.expect("response.done"))["text"] == "Hello there. How are you?"


async def test_what_a_reply_broke_off_in_is_no_sentence(start: StartServer) -> None:
    """It is cancelled in the second."""
    script = Script(
        reply=lambda _: ["Hello there.", " How", " are you?"],
        hold_before=asyncio.Event(),
        hold_after=2,
    )
    async with scripted_model(script) as model:
        client = await session(await start(llm_url=model.url), sentences=True)
        await client.send("Hello")
        sentence = await client.expect("response.sentence")
        await client.send_raw({"type": "response.cancel", "response_id": sentence["response_id"]})
        events = [await client.next_event()]
        while events[-1]["type"] != "response.done":
            events.append(await client.next_event())
        assert events[-1]["status"] == "cancelled" and sentences_in(events) == []


async def test_a_turn_over_http_has_them_too(start: StartServer, model: ScriptedModel) -> None:
    """Streamed as events, or in the answer; a stored reply has its sentences, without emotions."""
    server = await start(llm_url=model.url)
    await name_emotions(server)
    door = await door_to(server)
    async with door.stream("Hello", "t1", sentences=True) as stream:
        events = [event async for event in stream]
    assert sentences_in(events) == _SENTENCES
    assert (events[-1]["text"], events[-1]["emotion"]) == (_TEXT, "happy")
    (reply,) = (await door.turn("Hello again", "t2", sentences=True)).json()["replies"]
    told = [{name: sentence[name] for name in ("text", "emotion")} for sentence in _SENTENCES]
    assert (reply["text"], reply["emotion"], reply["sentences"]) == (_TEXT, "happy", told)
    (again,) = (await door.turn("Hello again", "t2", sentences=True)).json()["replies"]
    assert again["sentences"] == [{"text": sentence["text"]} for sentence in _SENTENCES]
    async with door.stream("Once more", "t3") as stream:
        events = [event async for event in stream]
    assert sentences_in(events) == [] and events[-1]["emotion"] == "happy"
    (plain,) = (await door.turn("And now", "t4")).json()["replies"]
    assert "sentences" not in plain


async def test_the_python_client_asks_for_them(start: StartServer, model: ScriptedModel) -> None:
    server = await start(llm_url=model.url)
    await name_emotions(server)
    spoken: list[str] = []
    async with Conversation(server.url, Identity("wren", "ana", "Ana"), sentences=True) as wren:
        wren.say("Hello")
        async for event in wren.events():
            if event["type"] == "response.sentence":
                spoken.append(event["emotion"])
            if event["type"] == "response.done":
                break
    assert spoken == ["happy", "happy", "calm"]


@pytest.mark.parametrize("emotion", ["", "(happy)", "very: happy", " happy", "a" * 41, "<b>"])
async def test_a_name_that_cannot_be_marked_is_refused(emotion: str) -> None:
    """By the setting's name, when a companion is read."""
    import msgspec  # noqa: PLC0415

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"emotions": [emotion]}, CompanionSettings)


async def test_the_offline_stand_in_marks_nothing(start: StartServer) -> None:
    """And what it quotes of the player stays as it was said."""
    server = await start()
    await name_emotions(server)
    client = await session(server, sentences=True)
    await events_of_reply(client, "Remember that my boat is called Happy: the second.")
    events = await events_of_reply(client, "Hello")
    assert "emotion" not in events[-1] and sentences_in(events)


def test_emotions_are_the_companions_alone() -> None:
    """No server has them."""
    assert "emotions" not in ServerSettings.__struct_fields__
