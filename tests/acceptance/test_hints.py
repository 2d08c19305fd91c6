"""A hint that is not understood keeps nobody out, whatever door it comes through."""

import json
from typing import Any

import pytest

from foremind_client import Client
from tests.acceptance.test_stated_language import _post
from tests.conftest import StartServer, owner_of

_LISBON = {"time_zone": "Europe/Lisbon", "language": "pt-PT"}
_WARNED = {
    "time_zone": "time_zone: expected an IANA name such as Europe/Lisbon; it counts as not given",
    "language": "language: expected a BCP 47 tag such as de or pt-BR; it counts as not given",
    "resume": "resume: expected the session_id and the seq of an event of a session; "
    "it counts as not given",
}


async def _open(client: Client, **hints: Any) -> dict[str, Any]:
    user = {"id": "ana", "name": "Ana"}
    opening = {"type": "session.open", "companion": "wren", "user": user, **hints}
    await client.send_raw(json.dumps(opening))
    return await client.next_event()


@pytest.mark.parametrize(
    ("hints", "warned", "stored"),
    [
        ({"time_zone": "Etc/Unknown"}, ["time_zone"], ("UTC", "pt")),
        ({"time_zone": "utc"}, [], ("UTC", "pt")),
        ({"time_zone": "GMT+2"}, [], ("Etc/GMT-2", "pt")),
        ({"time_zone": ""}, ["time_zone"], ("UTC", "pt")),
        ({"time_zone": None, "language": None, "resume": None}, [], ("UTC", "pt")),
        ({"time_zone": -120, "language": 7}, ["time_zone", "language"], ("UTC", "pt")),
        ({"time_zone": {"offset": 1}, "language": {}}, ["time_zone", "language"], ("UTC", "pt")),
        ({"time_zone": "Europe/Paris\0"}, [], ("Europe/Paris", "pt")),
        ({"time_zone": "\ud83d"}, ["time_zone"], ("UTC", "pt")),
        (
            {"time_zone": ["\udc80"], "language": "de\ud800"},
            ["time_zone", "language"],
            ("UTC", "pt"),
        ),
        ({"follow": None, "redirected": None, "contexts": None}, [], ("UTC", "pt")),
        ({"language": "en_US"}, [], ("UTC", "en")),
        ({"language": ["en-US", "en"]}, [], ("UTC", "en")),
        ({"language": "C"}, ["language"], ("UTC", "pt")),
        ({"language": ""}, ["language"], ("UTC", "pt")),
        ({"language": "x" * 10_000}, ["language"], ("UTC", "pt")),
    ],
)
async def test_a_session_opens_whatever_is_hinted(
    start: StartServer, hints: dict[str, Any], warned: list[str], stored: tuple[str, str]
) -> None:
    """What was stated before and is not stated now stays, but the time zone is then UTC."""
    server = await start()
    await _open(await server.connect(), **_LISBON)
    client = await server.connect()
    opened = await _open(client, **hints)
    assert opened["type"] == "session.opened", opened
    assert opened["warnings"] == [_WARNED[name] for name in warned]
    user = await owner_of(server.app.core).fetchrow("SELECT time_zone, language FROM users")
    assert tuple(user) == stored
    await client.send("Hello")
    await client.expect("response.done")


@pytest.mark.parametrize(
    ("resume", "understood"),
    [
        ({"seq": 1.0}, True),
        ({"seq": "1"}, True),
        ({"seq": 1.5}, False),
        ({"seq": -1}, False),
        ({"seq": None}, False),
        ({"seq": 1, "session_id": ""}, False),
        ({"seq": 1, "session_id": 7}, False),
        ({"seq": 1, "session_id": "\ud800"}, False),
        ("1", False),
        ([], False),
    ],
)
async def test_a_session_opens_whatever_is_to_be_resumed(
    start: StartServer, resume: Any, understood: bool
) -> None:
    """Anew, where it is not told what."""
    server = await start()
    first = await server.connect()
    before = await _open(first, **_LISBON)
    await first.close()
    if isinstance(resume, dict):
        resume = {"session_id": before["session_id"]} | resume
    opened = await _open(await server.connect(), resume=resume)
    assert opened["type"] == "session.opened", opened
    assert opened["resumed"] == understood
    assert opened["warnings"] == ([] if understood else [_WARNED["resume"]])


async def test_a_turn_is_made_whatever_is_hinted(start: StartServer) -> None:
    """What is not understood stays as it was stated last."""
    server = await start()
    await _post(server, id="m0", text="Hello", **_LISBON)
    cases: list[tuple[dict[str, Any], list[str], tuple[str, str]]] = [
        ({"time_zone": "Etc/Unknown"}, ["time_zone"], ("Europe/Lisbon", "pt")),
        ({"language": "C"}, ["language"], ("Europe/Lisbon", "pt")),
        ({"time_zone": 5, "language": ""}, ["time_zone", "language"], ("Europe/Lisbon", "pt")),
        ({"time_zone": "gmt+2", "language": "en_US"}, [], ("Etc/GMT-2", "en")),
        ({"time_zone": "Europe/Paris\0", "language": "\0"}, ["language"], ("Europe/Paris", "en")),
    ]
    for number, (hints, warned, stored) in enumerate(cases, 1):
        answer = await _post(server, id=f"m{number}", text="Hello", **hints)
        assert answer.status_code == 200, answer.text
        assert answer.json()["warnings"] == [_WARNED[name] for name in warned]
        user = await owner_of(server.app.core).fetchrow("SELECT time_zone, language FROM users")
        assert tuple(user) == stored


async def test_whole_numbers_may_be_written_with_a_point(start: StartServer) -> None:
    """As runtimes write them that have no others; another number is refused by name."""
    server = await start()
    client = await server.connect()
    assert (await _open(client, greeting=0.0))["type"] == "session.opened"
    await client.send("Hello", "m1")
    await client.expect("response.done")
    for index, expected in ((0.0, "response.chosen"), (0.5, "error")):
        choice = {"type": "response.choose", "message_id": "m1", "index": index}
        await client.send_raw(json.dumps(choice))
        event = await client.expect("response.chosen", "error")
        assert event["type"] == expected, event
    assert event["error"]["param"] == "index"
    for limit, status in ((3.0, 200), (3.5, 400)):
        answer = await _post(server, id=f"m{limit}", text="Hello", settings={"recall_limit": limit})
        assert answer.status_code == status, answer.text
