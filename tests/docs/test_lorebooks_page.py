"""docs/lorebooks.md names the decorators and the bounds that the code has."""

import re

from foremind.gateway.event_builders import MAX_LORE_VIEWS
from foremind.llm.prompt.assembly import MAX_TURNS
from foremind.lore import key_matcher, lorebook
from foremind.lore.activation import MAX_ROUNDS
from foremind.lore.lorebook import SUPPORTED
from foremind.typeahead import draft_lore
from tests.conftest import ROOT

TEXT = " ".join((ROOT / "docs" / "lorebooks.md").read_text("utf-8").split())
_DECORATOR = re.compile(r"`@@(\w+)[^`]*`")


def test_the_supported_decorators_are_those_of_the_table() -> None:
    """And those that are said to be ignored are not supported."""
    table, found, ignored = TEXT.partition("| supported | meaning |")[2].partition("Ignored are")
    assert found
    assert set(_DECORATOR.findall(table)) == SUPPORTED
    named = set(_DECORATOR.findall(ignored))
    assert {"instruct_depth", "is_greeting", "disable_ui_prompt"} <= named
    assert named.isdisjoint(SUPPORTED)


def test_every_bound_is_stated() -> None:
    """With its number."""
    for stated in (
        f"may have {lorebook.MAX_ENTRIES:,} entries and {lorebook.MAX_BOOK_CHARS:,} characters",
        f"{lorebook.MAX_CONTENT_CHARS:,} characters of content and {lorebook.MAX_KEYS} keys of "
        f"{lorebook.MAX_KEY_CHARS} characters",
        f"the {key_matcher.MAX_PATTERNS}th",
        f"of the first {MAX_LORE_VIEWS}",
        f"draft included: {lorebook.DEFAULT_SCAN_DEPTH},",
        f"at most {lorebook.MAX_SCAN_DEPTH}.",
        f"the last {key_matcher.MAX_SCANNED_CHARS:,} characters",
        f"by patterns the last {key_matcher.MAX_SCANNED_BY_PATTERNS:,}",
        f"For {lorebook.MAX_REMEMBERING} entries of a book",
        f"at most its last {MAX_TURNS} turns",
        f"at most {draft_lore.MAX_BYTES >> 20} MiB",
    ):
        assert stated in TEXT, stated
    assert MAX_ROUNDS == 10  # "ten rounds"
    assert draft_lore.LORE_SHARE == 0.25  # "a quarter of the model's context"
