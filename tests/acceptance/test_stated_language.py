"""A client may say the player's language; it decides about texts that do not tell theirs."""

from typing import Any

import httpx2

from foremind.text.languages.language_files import ENGLISH, LANGUAGES
from foremind_client import Client
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually_async,
    owner_of,
)

_UNSURE = "Zephyrine Halberd Quintana"  # names, which are of any language
_LIGHTHOUSES = "Zephyrine Leuchttürme Quintana"  # "leuchtturm" in German, "leuchttürm" otherwise
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


async def _post(server: RunningServer, path: str = "turns", **fields: Any) -> httpx2.Response:
    turn = {"companion": "wren", "user": "ana"} | fields
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.post(f"http://127.0.0.1:{server.port}/v1/{path}", json=turn)


async def _terms(server: RunningServer) -> set[str]:
    """Return what all memories are found by, once every turn is ingested."""
    owner = owner_of(server.app.core)
    waiting = "SELECT count(*) = 0 FROM background_steps WHERE step = 'ingest'"
    await eventually_async(lambda: owner.fetchval(waiting))
    return {row["term"] for row in await owner.fetch("SELECT DISTINCT term FROM memory_terms")}


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
    assert (await _post(server, id="m1", text="Hello", language="pt-BR")).status_code == 200
    assert _READ_AS_OTHER in await _reasons_after_opening(server, "ana", _UNSURE)
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.get(
            f"http://127.0.0.1:{server.port}/v1/users/ana/export", params={"user": "ana"}
        )
    assert response.json()["language"] == "pt"
    assert response.json()["relationships"][0]["language"] == "pt"
    assert (await _post(server, id="m2", text="Hello", language="EN")).status_code == 200
    assert _READ_AS_OTHER not in await _reasons_after_opening(
        server, "ana", "Ottoline Parsifal Merriweather"
    )


async def test_an_edited_message_is_in_the_language_that_it_tells(start: StartServer) -> None:
    """As a message is, whatever the one that it replaces was in; an unsure one in the stated."""
    server = await start()
    client = await server.connect()
    await client.open_session("wren", user_id="ana", name="ana", language="ja")
    await client.send("Good morning", "m1")
    await client.expect_all("response.done", "memory.stored")
    for text, message_id, as_other in (
        ("Ich arbeite als Krankenschwester in Leipzig", "m2", True),
        ("I promise to call my boat Zephyrine", "m3", False),
        (_UNSURE, "m4", True),
    ):
        await client.edit(f"m{int(message_id[1]) - 1}", text, message_id)
        stored = (await client.expect_all("response.done", "memory.stored"))["memory.stored"]
        assert stored["message_id"] == message_id
        assert (_READ_AS_OTHER in {reason["name"] for reason in stored["reasons"]}) == as_other


async def test_an_edit_and_another_reply_may_state_the_language(start: StartServer) -> None:
    """As a turn may; it is stored as if it had been stated with the message."""
    server = await start()
    assert (await _post(server, id="m1", text=_LIGHTHOUSES)).status_code == 200
    assert "leuchttürm" in await _terms(server)  # an unsure text is English
    assert "leuchtturm" not in await _terms(server)
    edited = {"id": "m2", "message_id": "m1", "text": _LIGHTHOUSES, "language": "de"}
    assert (await _post(server, "turns/edit", **edited)).status_code == 200
    assert "leuchtturm" in await _terms(server)
    again = {"id": "g1", "message_id": "m2", "language": "fr-CA"}
    assert (await _post(server, "turns/regenerate", **again)).status_code == 200
    assert await owner_of(server.app.core).fetchval("SELECT language FROM users") == "fr"
    edited_again = edited | {"id": "m3", "message_id": "m2"}
    for path, body in (("turns/regenerate", again), ("turns/edit", edited_again)):
        answered = await _post(server, path, **body | {"language": "C"})
        assert answered.json()["warnings"] == [
            "language: expected a BCP 47 tag such as de or pt-BR; it counts as not given"
        ]
    assert await owner_of(server.app.core).fetchval("SELECT language FROM users") == "fr"


async def test_what_is_corrected_or_indexed_anew_stays_in_the_stated_language(
    start: StartServer,
) -> None:
    """A correction as a message is, and the memories beside a message that is forgotten."""
    server = await start()
    client = await server.connect()
    await client.open_session("wren", user_id="ana", name="ana", language="de")
    base = f"http://127.0.0.1:{server.port}/v1/relationships"
    async with httpx2.AsyncClient(timeout=PATIENCE, params={"user": "ana"}) as http:
        await client.send(_UNSURE, "m1")
        kept = (await client.expect_all("response.done", "memory.stored"))["memory.stored"]
        (relationship,) = (await http.get(base)).json()
        memory = f"{base}/{relationship['id']}/memories/{kept['memory_id']}"
        corrected = await http.patch(memory, json={"content": _LIGHTHOUSES})
        assert corrected.is_success
        assert "leuchtturm" in await _terms(server)
        await client.send("Halberd Merriweather Ottoline", "m2")
        beside = (await client.expect_all("response.done", "memory.stored"))["memory.stored"]
        assert beside["stored"]
        forgotten = await http.delete(f"{base}/{relationship['id']}/memories/{beside['memory_id']}")
        assert forgotten.is_success
        assert "merriweath" not in str(await _terms(server))
        assert "leuchtturm" in await _terms(server)
