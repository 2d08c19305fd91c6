"""Facts that have one value at a time."""

import pytest

from foremind.domain.memory import Fact
from foremind.memory.profile import facts_in


@pytest.mark.parametrize(
    ("text", "slot", "value"),
    [
        ("I live in Lisbon", "home", "lisbon"),
        ("I've just moved to Porto, near the river", "home", "porto"),
        ("I work for the ferry company now", "employer", "ferri compani"),
        ("I'm working as a nurse these days", "job", "nurs"),
        ("my name is Ines", "name", "ine"),
        ("I am 31 years old", "age", "31"),
        ("I'm married since May", "status", "marri"),
        ("My favourite colour is dark green.", "favourite colour", "dark green"),
        ("my cat is called Miso", "name of cat", "miso"),
        ("I love rain", "likes rain", "yes"),
        ("I don't like rain", "likes rain", "no"),
        ("I can't stand rain!", "likes rain", "no"),
    ],
)
def test_a_statement_has_a_slot_and_a_value(text: str, slot: str, value: str) -> None:
    """Values are stemmed, so that different wordings compare as equal."""
    assert Fact(slot, value) in facts_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "Do you live in Lisbon?",
        "My brother lives in Turin",
        "hmm",
        "I moved the chair to the window and then I sat there for the whole long afternoon",
    ],
)
def test_questions_and_stories_state_nothing(text: str) -> None:
    """No fact is better than a wrong one."""
    assert facts_in(text) == []


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    """A model may write megabytes; only the maximum length of a message counts."""
    filler = "The ferry leaves at ten. " * 100_000
    assert facts_in(f"I live in Lisbon. {filler}I work at Lufthansa.") == [
        Fact("home", "lisbon"),
        Fact("home lisbon", "yes"),
    ]


@pytest.mark.parametrize("text", ["My cat is not called Miso", "I am allergic to walnuts"])
def test_what_is_denied_and_what_is_of_nobody_names_nobody(text: str) -> None:
    """Only "my cat is called Miso" says what a cat is called."""
    assert not [fact for fact in facts_in(text) if fact.slot.startswith("name of")]
