"""Everything that documents name exists: metrics, settings, commands, targets, requests."""

import re
from collections.abc import Callable
from functools import cache

import pytest

from foremind.api.openapi import OPERATIONS
from foremind.app.configuration import OTHER_PREFIXES, OTHER_VARIABLES
from foremind.cli.main import COMMANDS, load_command
from foremind.domain.settings.settings import Settings
from tests.conftest import ROOT
from tests.docs.markdown import documents
from tests.integration.test_deploy import exported, labels_of

# What code spans of each kind look like.
SHAPES = {
    "metric": re.compile(r"(foremind_\w+)(?:\{([\w, ]+)\})?"),
    "variable": re.compile(r"(FOREMIND_[A-Z_]+)(?:=.*|…)?"),
    "command": re.compile(r"foremind ([a-z]+(?: [a-z|]+)?)\b.*"),
    "target": re.compile(r"make ([a-z]+)\b.*"),
    "request": re.compile(r"((?:GET|POST|PUT|PATCH|DELETE) (?:/|…)\S*)( .*)?"),
}
NO_METRIC = {"foremind_server", "foremind_client"}  # a database role, a package
REFUSED = {"DELETE …/memories?abot=x"}  # shown as an example of an error


def named(kind: str) -> list[tuple[str, re.Match[str]]]:
    """Return all code spans of a kind, each with the name of its document."""
    spans = []
    for path in sorted(documents()):
        text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.S | re.M)
        for span in re.findall(r"`([^`\n]+)`", text):
            if match := SHAPES[kind].fullmatch(span):
                spans.append((path.name, match))
    return spans


@cache
def _commands() -> frozenset[str]:
    names = set(COMMANDS)
    for name, (target, _) in COMMANDS.items():
        command = load_command(name, target)
        names |= {f"{name} {inner}" for inner in getattr(command, "commands", {})}
    return frozenset(names)


def is_metric(match: re.Match[str]) -> bool:
    """Tell whether it is exported, with these labels."""
    name, labels = match.groups()
    documented = set(labels.split(", ")) if labels else set()
    return name in NO_METRIC or (name in exported() and documented <= labels_of(name))


def is_variable(match: re.Match[str]) -> bool:
    """Tell whether it is a setting, or another variable that may have the prefix."""
    name = match[1]
    settings = {f"FOREMIND_{model_field.upper()}" for model_field in Settings.__struct_fields__}
    return name in settings | OTHER_VARIABLES or name.startswith(OTHER_PREFIXES)


def is_command(match: re.Match[str]) -> bool:
    """Tell whether it is a command, or a group and one of its commands, perhaps with arguments."""
    first, _, second = match[1].partition(" ")
    inner = {command for command in _commands() if command.startswith(f"{first} ")}
    return first in _commands() and (not inner or not second or f"{first} {second}" in inner)


def is_target(match: re.Match[str]) -> bool:
    """Tell whether the Makefile has this target."""
    return match[1] in re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.M)


def is_request(match: re.Match[str]) -> bool:
    """Tell whether it is served, given as a whole path or its end, with any names in braces."""
    method, _, path = match[1].partition(" ")
    path, _, query = path.replace("…&", "").partition("?")
    path = re.sub(r"\{\w+\}", "{}", path)
    for operation in OPERATIONS:
        served = re.sub(r"\{\w+\}", "{}", operation.path)
        whole = served == path or (path.startswith("/") and served == f"{BELOW}{path}")
        ends = path.startswith("…") and served.endswith(path[1:])
        parameters = set(re.findall(r"(\w+)=", query)) - {"user"}
        known = parameters <= set(operation.query)
        if operation.method == method and (whole or ends) and known:
            return True
    return path == "/"


BELOW = "/v1/relationships/{}"  # the prefix that docs/user-data.md leaves out
CHECKS: dict[str, Callable[[re.Match[str]], bool]] = {
    "metric": is_metric,
    "variable": is_variable,
    "command": is_command,
    "target": is_target,
    "request": is_request,
}


@pytest.mark.parametrize("kind", SHAPES)
def test_everything_named_exists(kind: str) -> None:
    """In every document; some of each kind are named."""
    spans = named(kind)
    assert len(spans) > 5
    wrong = [
        (file, match[0])
        for file, match in spans
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
def test_unknown_names_are_noticed(kind: str, text: str) -> None:
    """The checks above can fail."""
    match = SHAPES[kind].fullmatch(text)
    assert match
    assert not CHECKS[kind](match)
