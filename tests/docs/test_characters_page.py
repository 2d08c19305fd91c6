"""docs/characters.md names the fields, macros and bounds that the code has."""

import re

from foremind.cards import card_fields, card_file, card_macros
from foremind.cards.card_macros import MacroValues, expand_card_macros
from foremind.llm.prompt.character import EXAMPLES_SHARE
from tests.conftest import ROOT
from tests.unit.cards.sample_cards import V3

TEXT = " ".join((ROOT / "docs" / "characters.md").read_text("utf-8").split())
_CODE = re.compile(r"`([^`]+)`")


def test_every_field_is_taken_or_ignored() -> None:
    """Those of a card of version 3, each in one of the two lists."""
    table, _, rest = TEXT.partition("## What is taken")[2].partition("Ignored, and kept:")
    taken = {name for row in table.split("| |") for name in _CODE.findall(row.split(" | ")[0])}
    ignored = set(_CODE.findall(rest.partition("**Greetings.**")[0]))
    assert taken == {*card_fields.NAMES, *card_fields.TEXTS, "alternate_greetings",
                     "character_book", "extensions.depth_prompt"}  # fmt: skip
    assert not taken & ignored
    dates = {"creation_date", "modification_date"}  # "dates"
    assert set(V3) - {"an unknown field"} <= taken | ignored | dates


def test_every_macro_is_replaced() -> None:
    """By what the table says."""
    values = MacroValues("Wren", "Ana")
    table = TEXT.partition("| macro | stands for |")[2].partition("Macros may contain")[0]
    macros = [code for code in _CODE.findall(table) if code[0] in "{<"]
    assert len(macros) > 10
    for macro in macros:
        assert expand_card_macros(macro, values) != macro
    assert expand_card_macros("{{reverse:abc}}", values) == "cba"
    assert f"up to {card_macros.MAX_DEPTH} deep" in TEXT


def test_every_bound_is_stated() -> None:
    """With its number."""
    for stated in (
        f"a file | {card_file.MAX_FILE_BYTES:,} bytes",
        f"{card_file.MAX_JSON_BYTES:,} bytes, {card_file.MAX_NESTING} levels",
        f"`nickname` | {card_fields.MAX_NAME_CHARS} characters",
        f"above | {card_fields.MAX_TEXT_CHARS:,} characters",
        f"{card_file.MAX_CHUNKS:,} chunks",
        f"{card_file.MAX_ENTRIES:,} entries of {card_file.MAX_UNPACKED_BYTES:,} bytes",
    ):
        assert stated in TEXT, stated
    assert (card_file.MAX_INTEGER, card_file.MAX_NUMBER) == (2**63 - 1, 1e22)
    assert EXAMPLES_SHARE == 1 / 8  # "an eighth of the model's context"
