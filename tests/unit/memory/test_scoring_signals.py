"""The five published signals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.memory.scoring import signals_in


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("hmm", 0.0),
        ("I promise I'll help you with your garden tomorrow", 0.65),
        ("I promise I’ll help you with your garden tomorrow", 0.65),
        ("Do you know the way?", 0.10),
        ("It made me happy", 0.20),
        ("We decided on blue", 0.15),
        ("That is important.", 0.30),
        ("x" * 101, 0.10),
        ("x" * 100, 0.0),
        ("The willow stands", 0.0),
    ],
)
def test_each_signal_adds_its_published_weight(text: str, score: float) -> None:
    """For two worked examples, and one text of each kind."""
    assert sum(signal.weight for signal in signals_in(text)) == pytest.approx(score)


def test_courtesies_are_not_emotions() -> None:
    """Thanks and praise occur in every other turn, and nobody asks about them later."""
    assert signals_in("Thanks, that looks amazing!") == []


@given(st.text(), st.text())
def test_a_longer_text_keeps_every_signal(first: str, second: str) -> None:
    """Signals only add up."""
    names = {signal.name for signal in signals_in(first)}
    assert names <= {signal.name for signal in signals_in(f"{first} {second}")}
