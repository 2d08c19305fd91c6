"""The changelog has the form that releases rely on."""

import re
from datetime import date

from foremind import __version__
from tests.conftest import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (.+)$", TEXT, re.M)
_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def test_versions_are_newest_first_and_dated() -> None:
    """Below what is not released yet."""
    assert SECTIONS[0] == "Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) - (\S+)", title) for title in SECTIONS[1:]]
    versions = []
    for heading in released:
        assert heading is not None
        date.fromisoformat(heading[2])
        versions.append(_version(heading[1]))
    assert versions == sorted(versions, reverse=True)


def test_the_version_of_the_code_is_released_or_announced() -> None:
    """What is not released says what it becomes."""
    unreleased = TEXT.split("\n## ")[1]
    titles = [title.split(" ")[0] for title in SECTIONS]
    assert __version__ in titles or f"This becomes {__version__}" in unreleased


def test_changes_are_sorted_by_the_kinds_of_keep_a_changelog() -> None:
    """So that what is deprecated or removed is found."""
    assert set(re.findall(r"^### (.+)$", TEXT, re.M)) <= _KINDS
