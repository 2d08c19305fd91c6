"""No test fails because the machine is busy: every timeout is at least PATIENCE."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import PATIENCE

_TESTS = Path(__file__).parents[1]
#: Short timeouts after which no test fails, and why.
_ALLOWED = {
    "faults/traffic.py: timeout": "a player without an answer reconnects",
    "faults/test_background.py: timeout": "it is repeated at a later virtual time",
    "integration/test_step_leases.py: wait": "it must not be finished, however long the test waits",
}
_WAITS = {"timeout", "wait_for", "wait", "acquire", "AsyncClient"}
_TIMEOUT_POSITIONS = {"timeout": 0, "wait_for": 1}
_SHORT_BY_DEFAULT = {"AsyncClient"}


def _short_timeouts(code: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the line of every call with a short timeout."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        is_mark = isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "mark"
        if name not in _WAITS or is_mark:
            continue
        timeouts = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        position = _TIMEOUT_POSITIONS.get(name, len(node.args))
        timeouts += node.args[position : position + 1]
        if (not timeouts and name in _SHORT_BY_DEFAULT) or any(map(_is_short, timeouts)):
            yield name, node.lineno


def _is_short(timeout: ast.expr) -> bool:
    return (
        isinstance(timeout, ast.Constant)
        and isinstance(timeout.value, int | float)
        and timeout.value < PATIENCE
    )


def test_no_test_has_a_short_timeout() -> None:
    """Also in HTTP clients, whose default is five seconds."""
    short: dict[str, list[int]] = {}
    for path in sorted(_TESTS.rglob("*.py")):
        for name, line in _short_timeouts(path.read_text()):
            short.setdefault(f"{path.relative_to(_TESTS)}: {name}", []).append(line)
    assert {call: lines for call, lines in short.items() if call not in _ALLOWED} == {}
    assert _ALLOWED.keys() <= short.keys()


def test_short_timeouts_are_found() -> None:
    """However they are written."""
    found = _short_timeouts(
        "asyncio.timeout(3)\nasyncio.wait_for(x, 20)\nhttpx2.AsyncClient()\n"
        "httpx2.AsyncClient(timeout=5)\npool.acquire(timeout=10)\n"
        "asyncio.timeout(PATIENCE)\nhttpx2.AsyncClient(timeout=None)\npytest.mark.timeout(60)\n"
    )
    assert [line for _, line in found] == [1, 2, 3, 4, 5]
