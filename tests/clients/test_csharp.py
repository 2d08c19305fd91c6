"""The client in C#, besides the recorded conversations: what only its driver is told to do."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import compile_csharp
from tests.clients.scripted_server import Step
from tests.clients.test_conformance import replay
from tests.contract.committed import JAVASCRIPT, UNITY
from tests.unit.auth.test_access_tokens import token


def _opened(seq: int) -> list[Step]:
    """Return the steps of a session that is opened; a command waits until this event is told."""
    opened = {"type": "session.opened", "seq": seq, "session_id": "s", "resumed": seq > 1}
    return [{"receive": {"type": "session.open"}}, {"send": opened}]


async def _play(driver: Path, conversation: dict[str, Any]) -> list[dict[str, Any]]:
    return await replay(["mono", str(driver)], conversation)


async def test_revisions_are_sent_again_until_they_are_accepted(csharp_driver: Path) -> None:
    """A message that is edited, and another reply; which stands is told once."""
    edit: Step = {
        "receive": {"type": "message.edit", "id": "$e", "message_id": "m", "text": "Bees"}
    }
    again: Step = {"receive": {"type": "response.regenerate", "id": "$r", "message_id": "n"}}
    choice: Step = {"receive": {"type": "response.choose", "message_id": "n", "index": 0}}
    accepted = {"type": "message.accepted", "duplicate": False}
    await _play(
        csharp_driver,
        {
            "connections": [
                [*_opened(1), {"command": {"edit": "m", "text": "Bees"}}, edit, {"abort": True}],
                [*_opened(2), edit, {"send": {**accepted, "seq": 3, "id": "$e"}}, {"close": 1011}],
                [*_opened(4), {"command": {"regenerate": "n"}}, again, {"abort": True}],
                [*_opened(5), again, {"send": {**accepted, "seq": 6, "id": "n"}}, {"close": 1011}],
                [*_opened(7), {"command": {"choose": "n", "index": 0}}, choice],
            ],
            "events": [{"type": "message.accepted"}, {"type": "message.accepted"}],
        },
    )


async def test_a_token_is_replaced_before_it_expires(csharp_driver: Path) -> None:
    """Which the server is told on the same connection."""
    now = int(time.time())
    brief, lasting = token(iat=now, exp=now + 1), token(iat=now, exp=now + 3600)
    await _play(
        csharp_driver,
        {
            "options": {"tokens": [{"token": brief}, {"token": lasting}]},
            "connections": [
                [*_opened(1), {"receive": {"type": "session.update", "token": lasting}}]
            ],
            "events": [{"type": "session.opened"}],
        },
    )


async def test_a_handler_that_throws_loses_no_event(csharp_driver: Path) -> None:
    """What it throws comes out of the call that raised the event; the next call goes on."""
    sent: list[Step] = [{"send": {"type": "moon.rose", "seq": number}} for number in range(2, 20)]
    seen = await _play(
        csharp_driver,
        {
            "options": {"throws": True},
            "connections": [[*_opened(1), *sent]],
            "events": [step["send"] for step in sent],
        },
    )
    assert [event["seq"] for event in seen if event["type"] == "moon.rose"] == list(range(2, 20))
    assert {"type": "thrown"} in seen


async def test_an_event_that_is_too_large_loses_the_connection(csharp_driver: Path) -> None:
    """The client is told why, and connects again; it names the time zone each time."""
    greeted: Step = {"receive": {"type": "session.open", "time_zone": "Europe/Lisbon"}}
    large = {"type": "moon.rose", "seq": 2, "text": "x" * 2**20}
    seen = await _play(
        csharp_driver,
        {
            "options": {"timeZone": "Europe/Lisbon"},
            "connections": [[greeted, _opened(1)[1], {"send": large}], [greeted, _opened(2)[1]]],
            "events": [
                {"type": "state", "state": "waiting", "code": 0},
                {"type": "session.opened", "seq": 2},
            ],
        },
    )
    assert any(event.get("reason") == "a message of more than 1048576 bytes" for event in seen)


@pytest.fixture(scope="module")
def json_echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads and writes JSON as the client does."""
    program = tmp_path_factory.mktemp("json") / "echo.exe"
    compile_csharp(program, Path(__file__).with_name("JsonEcho.cs"))
    return program


def test_json_is_read_and_written(json_echo: Path) -> None:
    """As Python does it, also half a character; what is none, or too deep, is refused."""
    values: list[Any] = [
        None, True, False, 0, -1.5, 1e-7, 2**53 - 1, 1.7976931348623157e308, "", "Zoë 🐝",
        "\ud83d", "\"\\/\b\f\n\r\t\0\x1f", [], {}, [[[]], {"": {}}], {"a": [1, "b", None]},
        [[]] * 500,
    ]  # fmt: skip
    refused = [
        "", "{", "[1,]", '{"a"}', '{"a":1,}', "{1:2}", "nul", "tru", '"\\x"', '"\\u12g4"', '"a',
        "1 2", "--1", "1e", "NaN", "[" * 66 + "]" * 66, '"\t"',
    ]  # fmt: skip
    lines = [*map(json.dumps, values), *refused]
    run = subprocess.run(
        ["mono", str(json_echo)],
        input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    written = [json.loads(line) for line in run.stdout.splitlines()]
    assert written[: len(values)] == values
    for answer in written[len(values) :]:
        assert answer.startswith("JSON: expected "), answer


@pytest.mark.parametrize(
    ("name", "javascript", "scale"),
    [
        ("MergeS", "MERGE_MS", 1000),
        ("LastRetryS", "LAST_RETRY_MS", 1000),
        ("ResubmitS", "RESUBMIT_MS", 1000),
        ("ToldTimeoutS", "TOLD_TIMEOUT_MS", 1000),
        ("TimeoutS", "TOKEN_TIMEOUT_MS", 1000),
        ("ShareOfLife", "SHARE_OF_LIFE", 1),
        ("MaxRefusals", "MAX_REFUSALS", 1),
        ("MaxUnaccepted", "MAX_UNACCEPTED", 1),
        ("MaxFrameBytes", "MAX_FRAME_BYTES", 1),
    ],
)
def test_its_bounds_are_those_of_the_client_in_javascript(
    name: str, javascript: str, scale: int
) -> None:
    """So that the table in docs/clients.md holds for both."""
    sources = "\n".join(path.read_text("utf-8") for path in UNITY.glob("*.cs"))
    module = (JAVASCRIPT / "lib" / "foremind.js").read_text("utf-8")
    ours = re.search(rf"\bconst \w+ {name} = ([\d.]+);", sources)
    theirs = re.search(rf"^const {javascript} = ([\d._]+)", module, re.M)
    assert ours is not None and theirs is not None
    assert float(ours[1]) * scale == float(theirs[1])
