"""Every setting that a document, a client or a sample names in code exists, where it is used."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from foremind.domain.settings.setting_levels import TURN_SETTINGS
from foremind.domain.settings.settings import CompanionSettings
from tests.conftest import ROOT
from tests.docs.markdown import documents

#: What is in braces after `settings`, in any language: `settings={"a": 1}`, `settings: { a: 1 }`.
_SETTINGS = re.compile(r"""\bsettings\b["'`\])]*(?:\s*[=:]\s*|[^\n{}]*such as `)\{([^{}]*)""")
_NAME = re.compile(r"""["'`]?\b(\w+)["'`]?\s*[:=](?!=)""")
_OF_A_TURN = re.compile(r"\b(say|send|edit|regenerate)\([^()]*settings", re.IGNORECASE)
#: Misspelt in order to show how it is refused.
_MISSPELT = {
    ("docs/clients.md", "llm_temprature"),
    ("tests/contract/sample.ts", "llm_temprature"),
}
_SOURCES = ("clients/**/*", "client_demo/**/*.js", "examples/*.py", "tests/contract/sample.ts")
_SUFFIXES = {".md", ".js", ".ts", ".py", ".cs", ".gd", ".lsl", ".luau"}


def _files() -> list[Path]:
    sources = (path for pattern in _SOURCES for path in ROOT.glob(pattern))
    return sorted({*documents(), *sources})


def _named() -> Iterator[tuple[str, str, str]]:
    """Yield each setting that is named: the file, its line and the setting."""
    for path in _files():
        if path.suffix in _SUFFIXES and "node_modules" not in path.parts:
            text = path.read_text("utf-8")
            for match in _SETTINGS.finditer(text):
                start, end = text.rfind("\n", 0, match.start()), text.find("\n", match.end())
                for name in _NAME.findall(match[1]):
                    yield str(path.relative_to(ROOT)), text[start + 1 : end], name


@pytest.mark.parametrize(("file", "line", "name"), list(_named()))
def test_a_setting_that_is_named_exists(file: str, line: str, name: str) -> None:
    """Or it is there to be refused; what a message has, a turn may have."""
    if (file, name) in _MISSPELT:
        return
    assert name in CompanionSettings.__struct_fields__
    if _OF_A_TURN.search(line):
        assert name in TURN_SETTINGS


def test_the_samples_of_each_language_are_found() -> None:
    """So that the search above finds what it should."""
    found = {(file, name) for file, _, name in _named()}
    assert {("docs/layers.md", "llm_temperature"), ("docs/turns.md", "recall_limit"),
            ("tests/contract/sample.ts", "llm_temperature"), *_MISSPELT} <= found  # fmt: skip
