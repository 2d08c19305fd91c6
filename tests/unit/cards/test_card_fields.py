"""The companion that a card makes, and the card that a companion makes."""

from typing import Any

import pytest

from foremind.cards.card_fields import (
    SYSTEM_PROMPT,
    card_of,
    character_name,
    closing_instructions,
    companion_of,
    examples_of,
    greetings_of,
    slug_of,
)
from foremind.cards.card_file import read_card, write_card
from foremind.domain.companion import Companion, CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from tests.unit.cards.sample_cards import V1, V2, V3


def stored(made: CompanionFile) -> Companion:
    """The companion as it would be read from the database."""
    return Companion(
        1, made.slug, made.name, made.greeting, made.persona, made.settings, 1, card=made.card
    )


def test_the_persona_is_made_of_the_fields_in_order() -> None:
    """System prompt, description, personality, scenario; not the notes for readers."""
    made = companion_of(V2)
    assert (made.slug, made.name, made.greeting) == ("mara", "Mara", V2["first_mes"])
    assert made.persona == (
        f"{SYSTEM_PROMPT} Keep it short.\n\n"
        "{{char}} keeps a lighthouse.\n\n"
        "Personality of {{char}}: dry, patient\n\n"
        "Scenario: {{user}} has come in from a storm."
    )
    assert made.card == V2


def test_a_card_without_texts_is_a_companion() -> None:
    """With nothing but a name, and null where texts could be."""
    made = stored(companion_of({"name": " The\nKeeper ", "scenario": None, "mes_example": None}))
    assert (made.name, made.slug, made.persona) == ("The Keeper", "the-keeper", SYSTEM_PROMPT)
    assert (greetings_of(made), list(examples_of(made))) == ([""], [])
    assert closing_instructions(made) == ""


def test_what_is_used_of_a_stored_card() -> None:
    """Nickname, greetings, examples, and instructions; Foremind has no original of the last."""
    made = stored(companion_of(V3))
    assert character_name(made) == "Mar"
    assert character_name(stored(companion_of(V2))) == "Mara"
    assert greetings_of(made) == [V3["first_mes"], *V3["alternate_greetings"]]
    assert list(examples_of(made)) == ["{{user}}: Is it far?\n{{char}}: Everything is far."]
    assert closing_instructions(made) == "Never mention the sea monster."


@pytest.mark.parametrize(
    ("name", "slug"),
    [("Mara", "mara"), ("Mara of the Light!", "mara-of-the-light"), ("灯台 2", "灯台-2"),
     ("../x", "x"), ("🗼", ""), ("a" * 300, "a" * 60)],
)  # fmt: skip
def test_slugs_are_made_of_names(name: str, slug: str) -> None:
    """Letters and digits of any script."""
    assert slug_of(name) == slug


def test_a_companion_that_was_no_card_gets_one() -> None:
    """Of version 2 and complete; read again, it has the same persona's text and greeting."""
    wren = Companion(1, "wren", "Wren", "Hello.", "You are Wren.", CompanionSettings(), 1)
    card = card_of(wren)
    assert read_card(write_card(card, "json")).data == card
    assert card | {"name": "Wren", "description": "You are Wren.", "first_mes": "Hello."} == card
    assert set(V2) - set(card) == {"character_book", "an unknown field"}
    book: dict[str, Any] = {"entries": []}
    with_book = Companion(
        1, "w", "W", "", "P.", CompanionSettings(), 1, card={"character_book": book}
    )
    assert card_of(with_book) == card_of(with_book) | {"name": "W", "character_book": book}
    assert card_of(stored(companion_of(V1))) == V1
