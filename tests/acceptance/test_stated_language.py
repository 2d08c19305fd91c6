"""A client may say the player's language; it decides about texts that do not tell theirs."""

from typing import Any

import httpx2
import pytest

from foremind.text.languages.language_files import ENGLISH, LANGUAGES
from foremind_client import Client
from tests.conftest import PATIENCE, RunningServer, StartServer

_UNSURE = "Zephyrine Halberd Quintana"  # names, which are of any language
_OTHERS = sorted(LANGUAGES.keys() - {ENGLISH})
# The only reason that is given in other languages than English alone.
_READ_AS_OTHER = "statement"


async def _reasons(client: Client, text: str) -> set[str]:
    """Return why a message is kept or not."""
    await client.send(text)
    stored = (await client.expect_all("response.done", "memory.stored"))["memory.stored"]
    return {reason["name"] for reason in stored["reasons"]}


async def _reasons_after_opening(
    server: RunningServer, user: str, text: str, **stated: Any
) -> set[str]:
    client = await server.connect()
    opened = await client.open_session("wren", user_id=user, name=user, **stated)
    assert opened["type"] == "session.opened", opened
    return await _reasons(client, text)


async def _post(server: RunningServer, **fields: Any) -> httpx2.Response:
    turn = {"companion": "wren", "user": "ana", "text": "Hello"} | fields
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.post(f"http://127.0.0.1:{server.port}/v1/turns", json=turn)


async def test_an_unsure_text_is_in_the_stated_language(start: StartServer) -> None:
    """In each that there is a file for; without one it is in English, as in one without a file."""
    server = await start()
    for language in _OTHERS:
        reasons = await _reasons_after_opening(server, language, _UNSURE, language=language)
        assert _READ_AS_OTHER in reasons, language
    for english in (None, "en", "en-GB", "sv"):
        reasons = await _reasons_after_opening(server, f"x{english}", _UNSURE, language=english)
        assert _READ_AS_OTHER not in reasons, english


async def test_a_text_that_tells_its_language_is_in_that_one(start: StartServer) -> None:
    """Whatever is stated."""
    server = await start()
    reasons = await _reasons_after_opening(
        server, "ana", "I promise to call my boat Zephyrine", language="de"
    )
    assert _READ_AS_OTHER not in reasons and "phrase" in reasons
    reasons = await _reasons_after_opening(
        server, "bo", "Ich arbeite als Krankenschwester in Leipzig", language="ja"
    )
    assert _READ_AS_OTHER in reasons


async def test_only_the_first_subtag_counts_and_it_holds_until_another_is_said(
    start: StartServer,
) -> None:
    """Over both doors; it is exported with what else is known of the user."""
    server = await start()
    assert (await _post(server, id="m1", language="pt-BR")).status_code == 200
    assert _READ_AS_OTHER in await _reasons_after_opening(server, "ana", _UNSURE)
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.get(
            f"http://127.0.0.1:{server.port}/v1/users/ana/export", params={"user": "ana"}
        )
    assert response.json()["language"] == "pt"
    assert response.json()["relationships"][0]["language"] == "pt"
    assert (await _post(server, id="m2", language="EN")).status_code == 200
    assert _READ_AS_OTHER not in await _reasons_after_opening(
        server, "ana", "Ottoline Parsifal Merriweather"
    )


@pytest.mark.parametrize("tag", ["", "d", "de_DE", "deutsch!", "дe", "de-", "de-" + "a" * 40])
async def test_what_is_no_tag_is_refused_with_what_was_expected(
    start: StartServer, tag: str
) -> None:
    """Over both doors."""
    server = await start()
    client = await server.connect()
    error = (await client.open_session("wren", user_id="ana", language=tag))["error"]
    assert (error["param"], error["retryable"]) == ("language", False)
    answer = await _post(server, id="m1", language=tag)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "language"
    if tag:
        expected = "language: expected a BCP 47 tag such as de or pt-BR"
        assert error["message"] == answer.json()["error"]["message"] == expected
