"""Foremind's own words in a prompt are in the player's language, one all through a session."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from foremind.text.languages.language_files import LANGUAGES
from foremind.text.languages.prompt_words import date_in, day_in, prompt_words
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.test_mcp import call, client_of
from tests.acceptance.test_message_path import send_and_wait
from tests.acceptance.world import world
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model that answers with fixed words."""
    async with scripted_model(Script(reply=lambda _: ["Of ", "course."])) as model:
        yield model


async def _open(server: RunningServer, user: str, **stated: Any) -> Client:
    client = await server.connect()
    opened = await client.open_session("wren", user_id=user, name=user, **stated)
    assert opened["type"] == "session.opened", opened
    return client


async def _remember_dog(server: RunningServer, clock: ManualClock, *, days: int) -> None:
    """Let Ana tell her dog's name in German, some days ago."""
    client = await _open(server, "ana", language="de")
    assert (await send_and_wait(client, "Mein Hund heißt Zephyrin"))["memory.stored"]["stored"]
    await client.close()
    await clock.leap(timedelta(days=days).total_seconds())


def _prompts(model: ScriptedModel) -> list[list[dict[str, str]]]:
    """Return the messages of every request for a reply, prefilled ones included."""
    return [request["messages"] for request in model.script.player_requests]


def _languages_of(messages: list[dict[str, str]]) -> set[str]:
    """Return the languages whose rules are in the system message of a prompt."""
    return {code for code in LANGUAGES if prompt_words(code).rules in messages[0]["content"]}


def _languages_of_all(requests: list[dict[str, Any]]) -> set[str]:
    """Return those of all requests; background work has no rules of its own for a companion."""
    return set[str]().union(*(_languages_of(request["messages"]) for request in requests))


async def test_the_prompt_is_in_the_stated_language(
    start: StartServer, model: ScriptedModel
) -> None:
    """The rules and the date, in every language; other words are quoted as they were said."""
    clock = ManualClock()
    server = await start(llm_url=model.url, clock=clock)
    for language in sorted(LANGUAGES):
        client = await _open(server, language, language=language)
        await send_and_wait(client, "Hello")
        messages = _prompts(model)[-1]
        assert _languages_of(messages) == {language}
        assert prompt_words(language).player.format(name=f'"{language}"') in messages[0]["content"]
        assert date_in(language, clock.now()) in messages[-1]["content"]
        assert messages[-1]["content"].endswith("\n\nHello")


async def test_a_session_keeps_its_language_and_the_next_takes_that_of_its_messages(
    start: StartServer, model: ScriptedModel
) -> None:
    """Whatever is said, and however often its client connects: a prefix cache lives on it."""
    clock = ManualClock()
    server = await start(llm_url=model.url, clock=clock)
    for text in ("Mein Hund heißt Zephyrin", "Ich arbeite in Leipzig"):
        client = await _open(server, "ana")
        await send_and_wait(client, text)
    first = _prompts(model)
    assert [_languages_of(messages) for messages in first] == [{"en"}] * 2
    await client.close()
    await clock.leap(timedelta(hours=30).total_seconds())
    for text in ("I was in a war", "And then I went home with them"):
        client = await _open(server, "ana")
        await send_and_wait(client, text)
    later = _prompts(model)[2:]
    assert [_languages_of(messages) for messages in later] == [{"de"}] * 2
    await client.close()


async def test_what_is_read_ahead_is_the_beginning_of_the_prompt(
    start: StartServer, model: ScriptedModel
) -> None:
    """In the player's language, too."""
    server = await start(llm_url=model.url)
    client = await _open(server, "ana", language="ja")
    await send_and_wait(client, "Hello")
    await eventually(lambda: _languages_of_all(model.script.prefill_requests) == {"ja"})
    await send_and_wait(client, "Hello again")
    assert _languages_of_all(model.script.requests) == {"ja"}


async def test_the_preview_and_a_turn_over_http_have_the_words_of_the_session(
    start: StartServer, model: ScriptedModel
) -> None:
    """The preview is word for word what the model would be given."""
    server = await start(llm_url=model.url)
    base = f"http://127.0.0.1:{server.port}/v1"
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        turn = {"companion": "wren", "user": "ana", "id": "m1", "text": "Hello", "language": "fr"}
        assert (await http.post(f"{base}/turns", json=turn)).status_code == 200
        assert _languages_of(_prompts(model)[-1]) == {"fr"}
        (relationship,) = (await http.get(f"{base}/relationships", params={"user": "ana"})).json()
        preview = await http.get(
            f"{base}/relationships/{relationship['id']}/context",
            params={"user": "ana", "draft": "Hello"},
        )
    assert json.dumps(prompt_words("fr").rules, ensure_ascii=False)[1:-1] in json.dumps(
        preview.json(), ensure_ascii=False
    )


async def test_what_is_recalled_is_introduced_in_the_language(
    start: StartServer, model: ScriptedModel
) -> None:
    """Who said it, and how long ago; in prompts, and in a preview of one."""
    clock = ManualClock()
    server = await start(llm_url=model.url, clock=clock)
    await _remember_dog(server, clock, days=21)
    client = await _open(server, "ana")
    await send_and_wait(client, "Wie heißt mein Hund?")
    day = day_in("de", clock.now() - timedelta(days=21))
    line = f'- vor 3 Wochen, am {day}, sagte "ana": "Mein Hund heißt Zephyrin"'
    assert line in _prompts(model)[-1][-1]["content"]
    base = f"http://127.0.0.1:{server.port}/v1/relationships"
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        (relationship,) = (await http.get(base, params={"user": "ana"})).json()
        asked = {"user": "ana", "draft": "Heißt mein Hund Bello?"}
        preview = await http.get(f"{base}/{relationship['id']}/context", params=asked)
    assert line in preview.json()["messages"][-1]["content"]


async def test_clients_are_told_ages_in_the_language_of_the_prompt(
    start: StartServer, model: ScriptedModel
) -> None:
    """Over the socket, in a turn over HTTP, and by a memory tool."""
    clock = ManualClock()
    server = await start(llm_url=model.url, clock=clock, mcp=True)
    await _remember_dog(server, clock, days=21)
    client = await _open(server, "ana")
    await client.send("Wie heißt mein Hund?")
    (memory,) = (await client.expect_all("context.ready", "response.done"))["context.ready"][
        "memories"
    ]
    assert memory["age"] == "vor 3 Wochen"
    turn = {"companion": "wren", "user": "ana", "id": "m1", "text": "Mein Hund, wie heißt der?"}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        ages = {"de": "vor 3 Wochen", "ja": "3 週間前", "en": "three weeks ago"}
        for language, age in ages.items():
            asked = turn | {"id": language, "language": language}
            answer = await http.post(f"http://127.0.0.1:{server.port}/v1/turns", json=asked)
            assert answer.json()["memories"][0]["age"] == age
    await _open(server, "ana", language="fr")
    async with client_of(server) as tools:
        recalled = await call(tools, "recall", query="Wie heißt mein Hund?", user="ana")
    assert recalled["memories"][0]["age"] == "il y a 3 semaines"


async def test_two_windows_in_two_languages_do_not_share_their_lines(
    start: StartServer, model: ScriptedModel
) -> None:
    """What one has prepared for a text is prepared anew for the other."""
    clock = ManualClock()
    server = await start(llm_url=model.url, clock=clock)
    await _remember_dog(server, clock, days=2)
    windows = {language: await _open(server, "ana", language=language) for language in ("de", "fr")}
    said = {"de": 'sagte "ana": "Mein', "fr": '"ana" a dit: "Mein'}
    for language in ("de", "fr", "de"):
        await send_and_wait(windows[language], "Wie heißt mein Hund?")
        prompt = _prompts(model)[-1][-1]["content"]
        assert {code for code, words in said.items() if words in prompt} == {language}


@pytest.mark.parametrize("model_writes", [False, True])
async def test_what_records_say_besides_what_was_said_is_in_the_language(
    start: StartServer, model_writes: bool
) -> None:
    """Labels and dates of the core memory, topics and the profile; and their prompts."""
    async with world(start, model=model_writes) as w:
        for text in ("I live in Porto", "I sail my boat to Madeira", "My boat is called Mira"):
            day = day_in("de", w.clock.now())
            await w.talk(text, "We decided to paint the boat", language="de")
            await w.next_day()
        if w.model is not None:
            requests = w.model.script.background_requests
            prompts = [request["messages"][1]["content"] for request in requests]
            known = next(prompt for prompt in reversed(prompts) if "Known:" in prompt)
            assert "Wohnort (" in known and "Sonstiges (" in known
            return
        (core_memory,) = await w.records("hot")
        lines = core_memory["content"].splitlines()
        assert any(line.startswith("Wohnort (") and line.endswith(": Porto") for line in lines)
        (boat,) = await w.records("topics", "boat")
        assert f"Am {day}:" in boat["content"]
        assert '- "Wohnort": "Porto" (gesagt am ' in await w.lines("profile")
