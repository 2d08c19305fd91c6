"""The scripts for Godot, as far as they can be checked without it: they are parsed, never run."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.committed import GODOT, JAVASCRIPT

CLIENT = (GODOT / "foremind.gd").read_text("utf-8")
PROTOCOL = (GODOT / "foremind_protocol.gd").read_text("utf-8")
_TOOLS = (("gdparse",), ("gdlint",), ("gdformat", "--check"))


def check_scripts(*paths: Path) -> None:
    """Check that gdtoolkit parses scripts, and finds nothing wrong with names, order or format."""
    for tool, *options in _TOOLS:
        command = [str(Path(sys.executable).parent / tool), *options, *map(str, paths)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, (tool, result.stdout, result.stderr)


def test_the_scripts_are_parsed_and_linted() -> None:
    """Both of them."""
    check_scripts(*sorted(GODOT.glob("*.gd")))


def test_a_broken_script_is_detected(tmp_path: Path) -> None:
    """The check that other tests rely on can fail."""
    broken = tmp_path / "broken.gd"
    broken.write_text(CLIENT.replace("func open() -> void:", "func open() -> void"))
    with pytest.raises(AssertionError, match="gdparse"):
        check_scripts(broken)


def test_the_client_uses_messages_of_the_contract() -> None:
    """Functions with as many required arguments as it gives, and types of events."""
    functions = set(re.findall(r"^static func (\w+)", PROTOCOL, re.M))
    constants = set(re.findall(r"^const (\w+)", PROTOCOL, re.M))
    used = set(re.findall(r"\bProtocol\.(\w+)", CLIENT))
    assert used <= functions | constants
    assert functions <= used | {"draft_clear"}
    assert {"SESSION_OPENED", "MESSAGE_ACCEPTED", "ERROR"} <= used
    parameters = dict(re.findall(r"^static func (\w+)\(([^)]*)\) ->", PROTOCOL, re.M))
    calls = list(_calls(CLIENT))
    assert {name for name, _ in calls} == used & functions
    for name, given in calls:
        stated = [part for part in parameters[name].split(",") if part.strip()]
        required = [part for part in stated if ":=" not in part]
        assert len(required) <= given <= len(stated), name


def _calls(script: str) -> Iterator[tuple[str, int]]:
    """Yield the functions of the protocol that a script calls, with how many arguments it gives."""
    for match in re.finditer(r"\bProtocol\.([a-z_]+)\(", script):
        depth, commas, end = 1, 0, match.end()
        while depth:
            depth += (script[end] in "([{") - (script[end] in ")]}")
            commas += depth == 1 and script[end] == ","
            end += 1
        yield match[1], commas + 1 if script[match.end() : end - 1].strip() else 0


def test_fields_that_the_client_reads_are_in_the_contract() -> None:
    """Of events and of errors."""
    read = set(re.findall(r'\b(?:event|error)\["(\w+)"\]', CLIENT))
    described = set(re.findall(r"\w+", " ".join(re.findall(r"^## (.*)$", PROTOCOL, re.M))))
    errors = {"code", "message", "event_id", "retryable"}
    assert read <= described | errors | {"type", "seq"}
    assert {"session_id", "seq", "error", *errors} <= read


@pytest.mark.parametrize(
    ("name", "javascript", "scale"),
    [
        ("MERGE_S", "MERGE_MS", 1000),
        ("FIRST_RETRY_S", "FIRST_RETRY_MS", 1000),
        ("LAST_RETRY_S", "LAST_RETRY_MS", 1000),
        ("RESUBMIT_S", "RESUBMIT_MS", 1000),
        ("ANSWER_TIMEOUT_S", "ANSWER_TIMEOUT_MS", 1000),
        ("MAX_UNACCEPTED", "MAX_UNACCEPTED", 1),
        ("MAX_FRAME_BYTES", "MAX_FRAME_BYTES", 1),
    ],
)
def test_its_bounds_are_those_of_the_client_in_javascript(
    name: str, javascript: str, scale: int
) -> None:
    """Which the recorded conversations test."""
    module = (JAVASCRIPT / "lib" / "foremind.js").read_text("utf-8")
    ours = re.search(rf"^const {name} := ([\d.]+)", CLIENT, re.M)
    theirs = re.search(rf"^const {javascript} = ([\d_]+)", module, re.M)
    assert ours is not None and theirs is not None
    assert float(ours[1]) * scale == float(theirs[1])
