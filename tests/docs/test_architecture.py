"""ARCHITECTURE.md describes the code as it is: rooms, imports, files and names."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "server" / "foremind"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"\w[\w.-]*(?:/[\w.-]+)+/?")  # but no route, which begins with a slash


def _section(heading: str) -> str:
    """The text below a heading of the second level."""
    _, found, below = TEXT.partition(f"\n## {heading}\n")
    assert found, heading
    return re.split(r"^## ", below, maxsplit=1, flags=re.MULTILINE)[0]


def _rows(heading: str) -> list[tuple[str, str]]:
    """The rows of the table below a heading, without the row of titles."""
    lines = [line for line in _section(heading).splitlines() if line.startswith("|")][2:]
    return [(cells[1].strip(), cells[2].strip()) for cells in (line.split("|") for line in lines)]


def _spans(text: str) -> set[str]:
    return set(_SPAN.findall(_FENCE.sub("", text)))


def _paths(text: str) -> set[str]:
    return {span for span in _spans(text) if _PATH.fullmatch(span)}


def _exists(path: str) -> bool:
    """A file or folder of the repository or of the package, or a module without its ending."""
    return any(
        (root / path).exists() or (root / f"{path}.py").is_file() for root in (ROOT, PACKAGE)
    )


def _rooms() -> set[str]:
    return {init.parent.name for init in PACKAGE.glob("*/__init__.py")}


@cache
def _code() -> str:
    """All Python of the package and all SQL."""
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "sql").rglob("*.sql")]
    return "\n".join(file.read_text("utf-8") for file in files)


def test_architecture_has_a_row_for_every_room() -> None:
    """And for every module next to them; the folders inside a room are in that room."""
    rows = [(set(_SPAN.findall(room)), contents) for room, contents in _rows("The rooms")]
    named = set[str]().union(*(names for names, _ in rows))
    rooms = {f"{room}/" for room in _rooms()}
    assert named == rooms | {module.name for module in PACKAGE.glob("[!_]*.py")}
    for (room,), contents in rows:
        for folder in re.findall(r"`(\w+)/`", contents):
            assert (PACKAGE / room / folder / "__init__.py").is_file(), (room, folder)


def test_the_line_of_arrows_goes_through_rooms() -> None:
    """From the client until Enter, on to the client, and afterwards."""
    (line,) = _FENCE.findall(_section("The rooms"))
    assert set(re.findall(r"\w+", line)) - {"client", "text", "Enter"} <= _rooms()


def _contract(name: str) -> dict[str, Any]:
    """A contract that import-linter enforces, by its id."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    (found,) = (contract for contract in contracts if contract["id"] == name)
    return found


def test_architecture_has_a_row_for_every_distribution() -> None:
    """With its package, in the folder that has its pyproject.toml."""
    rows = {name.strip("`"): cells for name, cells in _rows("The distributions")}
    for file in (
        ROOT / "pyproject.toml",
        *ROOT.glob("*/pyproject.toml"),
        *ROOT.glob("clients/*/pyproject.toml"),
    ):
        project = tomllib.loads(file.read_text("utf-8"))
        (package,) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        folder = (file.parent / package).relative_to(ROOT)
        assert rows.pop(project["project"]["name"]) == f"`{folder}`"
    assert not rows


def test_imports_go_the_way_that_architecture_says() -> None:
    """The order in the text is the one that the linter enforces."""
    layers = _contract("rooms")["layers"]
    enforced = [set(re.findall(r"foremind\.(\w+)", layer)) for layer in layers]
    (written,) = re.findall(r"`(cli →[^`]*)`", TEXT)
    assert [set(re.findall(r"\w+", layer)) for layer in written.split("→")] == enforced[1:]


def _says_pure(module: Path) -> bool:
    text = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return re.search(r"\bPure\b", text) is not None


def test_what_calls_itself_pure_is_kept_from_storage() -> None:
    """By name, or because its room is below storage; the HTTP contract is made of its handlers."""
    rooms = _contract("rooms")["layers"]
    below = tuple(f"{room}." for room in rooms[rooms.index("foremind.storage") + 1 :])
    kept = set(_contract("decisions")["source_modules"])
    pure = [module for module in PACKAGE.rglob("*.py") if _says_pure(module)]
    assert len(pure) > 50
    for module in pure:
        parts = module.relative_to(PACKAGE.parent).with_suffix("").parts
        names = {".".join(parts[:length]) for length in range(2, len(parts) + 1)}
        excused = ".".join(parts).startswith((*below, "foremind.api."))
        assert excused or names & kept, module


def test_every_file_and_module_that_architecture_names_exists() -> None:
    """With its folder, as it is now."""
    paths = _paths(TEXT)
    assert not {path for path in paths if not _exists(path)}


def test_every_identifier_that_architecture_names_occurs_in_the_code() -> None:
    """Classes are defined; settings, tables and columns are at least used."""
    classes = {span for span in _spans(TEXT) if re.fullmatch(r"(?:[A-Z][a-z]+)+", span)}
    assert classes
    assert not {name for name in classes if not re.search(rf"^class {name}\b", _code(), re.M)}
    names = {span for span in _spans(TEXT) if re.fullmatch(r"[a-z]+(?:_[a-z]+)+", span)}
    metrics = {name for name in names if name.startswith("foremind_")}  # see test_names
    assert not {name for name in names - metrics if not re.search(rf"\b{name}\b", _code())}


def test_twenty_common_changes_have_their_files() -> None:
    """Each row names at least one file or folder."""
    rows = _rows("Where do I change ...")
    assert len(rows) >= 20
    for change, where in rows:
        assert _paths(where) or _spans(where) & {"cli/"}, change


_DISTRIBUTIONS = {
    ROOT: PACKAGE,
    ROOT / "transport": ROOT / "transport" / "fair_transport",
    ROOT / "models": ROOT / "models" / "foremind_models",
    ROOT / "clients" / "python": ROOT / "clients" / "python" / "foremind_client",
    ROOT / "evaluation": ROOT / "evaluation" / "foremind_eval",
}
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?")
#: What is imported in the environment of the small model, which is another.
_ELSEWHERE = {"xllamacpp"}


def _normalised(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()


def _requirements(folder: Path) -> set[str]:
    """What a distribution or one of its extras requires, but for testing."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    listed = [*project["dependencies"], *(line for name in extras.keys() - {"test"}
                                          for line in extras[name])]  # fmt: skip
    found: set[str] = set()
    for line in listed:
        match = _REQUIREMENT.match(line)
        assert match is not None, line
        found.add(_normalised(match[1]))
        for extra in filter(None, (match[2] or "").split(",")):
            found |= {
                _normalised(needed[1])
                for optional in requires(match[1]) or ()
                if f"extra == '{extra}'" in optional.replace('"', "'")
                and (needed := _REQUIREMENT.match(optional)) is not None
            }
    return found


def _imported(package: Path) -> set[str]:
    """The names of what modules of a package import at the highest level, wherever they do."""
    names: set[str] = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - _ELSEWHERE - {package.name}


@pytest.mark.parametrize("folder", _DISTRIBUTIONS, ids=lambda folder: folder.name)
def test_a_distribution_requires_what_it_imports(folder: Path) -> None:
    """Or it would work only beside what happens to require the same."""
    providers = packages_distributions()
    required = _requirements(folder)
    missing = {
        name
        for name in _imported(_DISTRIBUTIONS[folder])
        if required.isdisjoint(map(_normalised, providers.get(name, [name])))
    }
    assert not missing
