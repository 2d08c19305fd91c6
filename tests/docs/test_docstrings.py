"""What docstrings say of arguments."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SOURCES = sorted(
    path.relative_to(_ROOT).as_posix()
    for package in ("server", "clients/python", "evaluation", "models", "transport")
    for path in (_ROOT / package).rglob("*.py")
)
_ARGUMENTS = re.compile(r"^Args:\n((?:    .*\n?|\n)+)", re.MULTILINE)
_NAMES = re.compile(r"^    ([a-z_*][\w, *]*):", re.MULTILINE)


def _described(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for section in _ARGUMENTS.findall(ast.get_docstring(node) or ""):
            for names in _NAMES.findall(section):
                yield from (name.strip(" *") for name in names.split(","))


def _taken(node: ast.AST) -> set[str]:
    """Return the names of a function's arguments, or of those of a class's constructor."""
    if isinstance(node, ast.ClassDef):
        constructors = [child for child in node.body if getattr(child, "name", "") == "__init__"]
        fields = (child for child in node.body if isinstance(child, ast.AnnAssign))
        named = {field.target.id for field in fields if isinstance(field.target, ast.Name)}
        return named.union(*(_taken(constructor) for constructor in constructors))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {child.arg for child in ast.walk(node.args) if isinstance(child, ast.arg)}
    return set()


@pytest.mark.parametrize("source", _SOURCES)
def test_docstrings_describe_arguments_that_exist(source: str) -> None:
    """So that a renamed argument is renamed where it is described."""
    tree = ast.parse((_ROOT / source).read_text())
    stale = {
        f"{getattr(node, 'name', '')}: {name}"
        for node in ast.walk(tree)
        for name in _described(node)
        if name not in _taken(node)
    }
    assert stale == set()
