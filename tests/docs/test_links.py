"""Everything that documents link to or name as a file exists."""

import re
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

# Paths in documents are relative to the repository, or to the package.
PACKAGE = ROOT / "server" / "foremind"
_ROOTS = (ROOT, PACKAGE)
# Spans that look like files of the repository and are not. Each must occur in some document.
NOT_OURS = {
    "conflicts.md": "written by `foremind files read`",
    "guidelines.md": "written by `foremind files write`",
    "history.md": "written by `foremind files write`",
    "deploy/.env": "written by deploy/compose/new-env.sh",
    "foremind.toml": "the operator's",
    "librechat.yaml": "the operator's",
    "talk.py": "the reader's",
    "card.json": "in an archive",
    "tokenizer.json": "a model's",
    "onnx/model.onnx": "a model's",
    "application/json": "a media type",
}

DOCUMENTS = sorted(documents())


def _prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text("utf-8"))


def _anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", _prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _files(text: str) -> set[str]:
    """Return the code spans that look like a file or a folder."""
    return {span for span in _SPAN.findall(text) if _FILE.fullmatch(span)}


@cache
def _names() -> frozenset[str]:
    """Return the names of all files of the repository."""
    folders = (
        "client_demo",
        "clients",
        "deploy",
        "docs",
        "evaluation",
        "examples",
        "loadtests",
        "models",
        "server",
        "tests",
        "transport",
    )
    return frozenset(file.name for folder in folders for file in (ROOT / folder).rglob("*.*"))


def _exists(name: str, folder_of_document: Path) -> bool:
    """Tell whether it is a file, a folder, or a module without its suffix, perhaps with a name."""
    if "/" not in name and name in _names():
        return True
    stem, _, inside = name.rpartition("/")[2].partition(".")
    folder = name.rpartition("/")[0]
    for root in (*_ROOTS, folder_of_document):
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
    """To a file or folder of the repository, and to an existing heading."""
    for target in _LINK.findall(_prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        assert not anchor or anchor in _anchors(file), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=_id)
def test_every_named_file_exists(path: Path) -> None:
    """Every code span that looks like a path."""
    missing = {
        file
        for file in _files(_prose(path))
        if file not in NOT_OURS and not _exists(file, path.parent)
    }
    assert not missing


def test_every_exception_is_needed() -> None:
    """Each exception above occurs in a document."""
    assert set(NOT_OURS) <= set().union(*(_files(_prose(path)) for path in DOCUMENTS))


def test_every_promise_of_security_has_a_test() -> None:
    """Each row of the table names tests that exist, or a target that measures."""
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
