"""What the documents call by name has that name: metrics, settings, commands, targets, requests."""

import re
from collections.abc import Callable
from functools import cache

import pytest
import typer

from foremind.api.openapi import OPERATIONS
from foremind.cli.main import app
from foremind.domain.setting_syntax import OTHER_PREFIXES, OTHER_VARIABLES
from foremind.domain.settings import Settings
from tests.conftest import ROOT
from tests.docs.markdown import documents
from tests.integration.test_deploy import exported, labels_of

# The shapes of what is named in code, by what it is.
SHAPES = {
    "metric": re.compile(r"(foremind_\w+)(?:\{([\w, ]+)\})?"),
    "variable": re.compile(r"(FOREMIND_[A-Z_]+)(?:=.*|…)?"),
    "command": re.compile(r"foremind ([a-z]+(?: [a-z|]+)?)\b.*"),
    "target": re.compile(r"make ([a-z]+)\b.*"),
    "request": re.compile(r"((?:GET|POST|PUT|PATCH|DELETE) (?:/|…)\S*)( .*)?"),
}
NO_METRIC = {"foremind_server"}  # the role that the server works as
REFUSED = {"DELETE …/memories?abot=x"}  # shown because it is


def named(kind: str) -> list[tuple[str, re.Match[str]]]:
    """All code spans of a shape, with the document that they stand in."""
    found = []
    for path in sorted(documents()):
        text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.S | re.M)
        for span in re.findall(r"`([^`\n]+)`", text):
            if match := SHAPES[kind].fullmatch(span):
                found.append((path.name, match))
    return found


@cache
def _commands() -> frozenset[str]:
    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    names = set(root.commands)
    for name, command in root.commands.items():
        names |= {f"{name} {inner}" for inner in getattr(command, "commands", {})}
    return frozenset(names)


def is_metric(match: re.Match[str]) -> bool:
    """One that is exported, with these labels."""
    name, labels = match.groups()
    wanted = set(labels.split(", ")) if labels else set()
    return name in NO_METRIC or (name in exported() and wanted <= labels_of(name))


def is_variable(match: re.Match[str]) -> bool:
    """A setting, or one of those that may be there beside them."""
    name = match[1]
    settings = {f"FOREMIND_{model_field.upper()}" for model_field in Settings.model_fields}
    return name in settings | OTHER_VARIABLES or name.startswith(OTHER_PREFIXES)


def is_command(match: re.Match[str]) -> bool:
    """A command, or the group and one of its own; what follows may be an argument."""
    first, _, then = match[1].partition(" ")
    inner = {command for command in _commands() if command.startswith(f"{first} ")}
    return first in _commands() and (not inner or not then or f"{first} {then}" in inner)


def is_target(match: re.Match[str]) -> bool:
    """Of the Makefile."""
    return match[1] in re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.M)


def is_request(match: re.Match[str]) -> bool:
    """One that is served: with any names in braces, and whole or from its end on."""
    method, _, path = match[1].partition(" ")
    path, _, query = path.replace("…&", "").partition("?")
    path = re.sub(r"\{\w+\}", "{}", path)
    for each in OPERATIONS:
        served = re.sub(r"\{\w+\}", "{}", each.path)
        whole = served == path or (path.startswith("/") and served == f"{BELOW}{path}")
        ends = path.startswith("…") and served.endswith(path[1:])
        asked = set(re.findall(r"(\w+)=", query)) - {"user"}
        if each.method == method and (whole or ends) and asked <= set(each.query):
            return True
    return path == "/"


BELOW = "/v1/relationships/{}"  # what docs/layers.md leaves out
CHECKS: dict[str, Callable[[re.Match[str]], bool]] = {
    "metric": is_metric,
    "variable": is_variable,
    "command": is_command,
    "target": is_target,
    "request": is_request,
}


@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_named_is_there(kind: str) -> None:
    """In every document; at least some of each kind are."""
    found = named(kind)
    assert len(found) > 5
    wrong = [
        (file, match[0])
        for file, match in found
        if match[0] not in REFUSED and not CHECKS[kind](match)
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("metric", "foremind_moods_total"), ("metric", "foremind_contexts_total{mood}"),
        ("variable", "FOREMIND_MOOD"), ("command", "foremind mood"),
        ("command", "foremind db mood"), ("target", "make mood"),
        ("request", "GET /v1/moods"), ("request", "DELETE …/memories?abot=x"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_noticed(kind: str, text: str) -> None:
    """A check that cannot fail would be none."""
    match = SHAPES[kind].fullmatch(text)
    assert match
    assert not CHECKS[kind](match)
