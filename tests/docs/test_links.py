"""What the documents point to is there: files, headings, tests and modules."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import documents

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?|[\w-]+\.(?:py|sql|md|toml|json|yaml|js|service)")
_TEST_LINK = re.compile(r"\[(?P<name>test_\w+)\]\((?P<path>[^)]+)\)")

# Where a path in a document may begin: the repository, or the package, whose rooms
# ARCHITECTURE.md names without it.
PACKAGE = ROOT / "server" / "foremind"
_ROOTS = (ROOT, PACKAGE)
# What looks like a file of the repository and is none: it is the reader's own, a route, a name
# of a model or an operation. Each must still be written somewhere.
NOT_OURS = {
    "conflicts.md": "written by `foremind files read`",
    "history.md": "written by `foremind files write`",
    "foremind.toml": "the operator's",
    "tokenizer.json": "a model's",
    "onnx/model.onnx": "a model's",
    "application/json": "a media type",
}

DOCUMENTS = sorted(documents())


def _prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text("utf-8"))


def _anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _files(text: str) -> set[str]:
    """Code spans that look like a file or a folder."""
    return {each for each in _SPAN.findall(text) if _FILE.fullmatch(each)}


@cache
def _names() -> frozenset[str]:
    """The names of all files that are kept with the code."""
    folders = (
        "client_demo",
        "deploy",
        "docs",
        "examples",
        "loadtests",
        "models",
        "server",
        "tests",
    )
    return frozenset(each.name for folder in folders for each in (ROOT / folder).rglob("*.*"))


def _exists(name: str, beside: Path) -> bool:
    """A file, a folder, or a module written without its ending, perhaps with a name in it."""
    if "/" not in name and name in _names():
        return True
    stem, _, inside = name.rpartition("/")[2].partition(".")
    folder = name.rpartition("/")[0]
    for root in (*_ROOTS, beside):
        if (root / name).exists():
            return True
        module = root / folder / f"{stem}.py"
        if module.is_file():
            return not inside or inside == "py" or inside in module.read_text("utf-8")
    return False


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=_id)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    """To a file or folder of the repository, and to a heading that it has."""
    for target in _LINK.findall(_prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        assert not anchor or anchor in _anchors(file), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=_id)
def test_every_file_that_is_named_is_there(path: Path) -> None:
    """Whatever is written in code and looks like a path."""
    missing = {
        file
        for file in _files(_prose(path))
        if file not in NOT_OURS and not _exists(file, path.parent)
    }
    assert not missing


def test_nothing_is_excused_without_need() -> None:
    """Each exception above is still written in a document."""
    assert set(NOT_OURS) <= set().union(*(_files(_prose(path)) for path in DOCUMENTS))


def test_every_promise_of_security_has_a_test() -> None:
    """Each row of the table names tests that are there, or a target that measures."""
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 20
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    for row in rows:
        _, promise, held_by, _, _ = row.split("|")
        measured = re.findall(r"`make (\w+)", held_by)
        assert set(measured) <= set(targets), promise
        tests = list(_TEST_LINK.finditer(held_by))
        for test in tests:
            file = ROOT / test["path"]
            assert file.stem == test["name"], promise
            assert re.search(r"^ *(async )?def test_|TestCase", file.read_text("utf-8"), re.M), (
                promise
            )
        assert tests or measured, promise


def test_architecture_has_a_row_for_every_room() -> None:
    """And for every module beside them: neither one too few nor one that is gone."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w/.]+)`", row)}
    rooms = {f"{each.parent.name}/" for each in PACKAGE.glob("*/__init__.py")}
    assert named == rooms | {each.name for each in PACKAGE.glob("[!_]*.py")}


def test_the_pictures_of_architecture_show_modules_that_are_there() -> None:
    """Each `room/module` in a picture is one."""
    pictures = "".join(_FENCE.findall((ROOT / "ARCHITECTURE.md").read_text("utf-8")))
    rooms = {each.parent.name for each in PACKAGE.glob("*/__init__.py")}
    shown = {(room, name) for room, name in re.findall(r"(\w+)/(\w+)", pictures) if room in rooms}
    assert shown
    missing = [each for each in shown if not (PACKAGE / each[0] / f"{each[1]}.py").is_file()]
    assert not missing


def test_imports_go_the_way_that_architecture_says() -> None:
    """The order in the text is the one that the linter holds."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (layers,) = (each["layers"] for each in contract["tool"]["importlinter"]["contracts"])
    held = [set(re.findall(r"foremind\.(\w+)", layer)) for layer in layers]
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    (said,) = re.findall(r"`(cli →[^`]*)`", text)
    assert [set(re.findall(r"\w+", each)) for each in said.split("→")] == held[1:]
