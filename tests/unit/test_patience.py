"""No test gives up because the machine is busy: whatever it waits for has PATIENCE."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import PATIENCE

_TESTS = Path(__file__).parents[1]
#: Short waits after which nothing fails, and why.
_SHORT = {
    "faults/traffic.py: timeout": "a player who hears nothing connects again",
    "faults/test_background.py: timeout": "it is asked again, with time passed on",
    "integration/test_curation.py: wait": "it must not be done yet, however long one waits",
}
_WAITS = {"timeout", "wait_for", "wait", "acquire", "AsyncClient"}
_PLACES = {"timeout": 0, "wait_for": 1}  # of the argument that is the time
_ALWAYS = {"AsyncClient"}  # what gives up after a few seconds where nothing is said


def _short_waits(code: str) -> Iterator[tuple[str, int]]:
    """Yield what a test waits for too shortly, and in which line."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        marks = isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "mark"
        if name not in _WAITS or marks:
            continue
        times = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        place = _PLACES.get(name, len(node.args))
        times += node.args[place : place + 1]
        if (not times and name in _ALWAYS) or any(map(_is_short, times)):
            yield name, node.lineno


def _is_short(time: ast.expr) -> bool:
    return (
        isinstance(time, ast.Constant)
        and isinstance(time.value, int | float)
        and time.value < PATIENCE
    )


def test_whatever_a_test_waits_for_has_time() -> None:
    """Also requests, which would give up after five seconds."""
    short: dict[str, list[int]] = {}
    for path in sorted(_TESTS.rglob("*.py")):
        for name, line in _short_waits(path.read_text()):
            short.setdefault(f"{path.relative_to(_TESTS)}: {name}", []).append(line)
    assert {each: lines for each, lines in short.items() if each not in _SHORT} == {}
    assert _SHORT.keys() <= short.keys()


def test_short_waits_are_found() -> None:
    """In each of the ways that they are written."""
    found = _short_waits(
        "asyncio.timeout(3)\nasyncio.wait_for(x, 20)\nhttpx2.AsyncClient()\n"
        "httpx2.AsyncClient(timeout=5)\npool.acquire(timeout=10)\n"
        "asyncio.timeout(PATIENCE)\nhttpx2.AsyncClient(timeout=None)\npytest.mark.timeout(60)\n"
    )
    assert [line for _, line in found] == [1, 2, 3, 4, 5]
