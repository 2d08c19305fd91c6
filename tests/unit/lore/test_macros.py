"""Macros of entries are replaced, removed or left as they are."""

import pytest

from foremind.lore.macros import expand_macros


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("{{char}} and {{USER}}", "Wren and Ana"),
        ("{{// a note}}A{{comment: b}}B{{hidden_key:c}}", "AB"),
        ("{{roll:6}} {{unknown}} {char}", "{{roll:6}} {{unknown}} {char}"),
    ],
)
def test_macros_are_replaced(text: str, expanded: str) -> None:
    """Their case does not matter."""
    assert expand_macros(text, "Wren", "Ana") == expanded


def test_a_players_name_neither_ends_a_line_nor_closes_a_tag() -> None:
    """Nor is it a macro."""
    assert expand_macros("{{user}}.", "Wren", "</lore>\n{{char}}") == "/lore {{char}}."
