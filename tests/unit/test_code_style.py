"""One name for one thing, and nothing too large to take in: what can be counted of the style."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

_PACKAGES = (
    "server/foremind",
    "clients/python/foremind_client",
    "evaluation/foremind_eval",
    "models/foremind_models",
)
_NAMELESS = {"each", "one", "it"}
_MAX_FUNCTION_LINES = 60  # below its docstring
_TABLES = {"Metrics.__init__"}  # one metric after another


def _folder(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef)]


def _functions(path: Path) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods, each with its name and that of its class."""
    return [
        (f"{node.name}.{child.name}" if isinstance(node, ast.ClassDef) else child.name, child)
        for node in ast.walk(_tree(path))
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _used_twice(names: list[tuple[str, Path]]) -> dict[str, list[Path]]:
    places: dict[str, list[Path]] = defaultdict(list)
    for name, path in names:
        places[name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_two_modules_share_a_name() -> None:
    """In any of the packages, so that a name says where to look."""
    modules = [(path.stem, path) for path in _folder(*_PACKAGES) if "__" not in path.stem]
    assert len(modules) > 200
    assert not _used_twice(modules)


def test_no_two_classes_share_a_name() -> None:
    """In any of the packages."""
    classes = [(cls.name, path) for path in _folder(*_PACKAGES) for cls in _classes(path)]
    assert len(classes) > 300
    assert not _used_twice(classes)


@pytest.mark.parametrize(
    "folder", [*_PACKAGES, "transport", "loadtests", "tests", "training", "examples"]
)
def test_loop_variables_say_what_they_are(folder: str) -> None:
    """Not `each`, `one` or `it`."""
    for path in _folder(folder):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                names = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
                assert not names & _NAMELESS, (path, ast.unparse(node.target))


def test_functions_fit_on_a_page() -> None:
    """All but tables."""
    for path in _folder(*_PACKAGES, "transport", "loadtests"):
        for name, function in _functions(path):
            first = (
                function.body[1]
                if len(function.body) > 1 and ast.get_docstring(function)
                else function.body[0]
            )
            lines = (function.end_lineno or 0) - first.lineno + 1
            assert lines <= _MAX_FUNCTION_LINES or name in _TABLES, (path, name, lines)
