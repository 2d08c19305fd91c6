"""The five published signals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.memory.significance import judge


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("hmm", 0.0),
        ("I promise I'll help you with your garden tomorrow", 0.65),
        ("I promise I’ll help you with your garden tomorrow", 0.65),
        ("Do you like it here?", 0.10),
        ("It was a wonderful day", 0.20),
        ("We decided on blue", 0.15),
        ("That is important.", 0.30),
        ("x" * 101, 0.10),
        ("x" * 100, 0.0),
        ("The willow stands", 0.0),
    ],
)
def test_each_signal_adds_its_published_weight(text: str, score: float) -> None:
    """The two worked examples and one of each kind."""
    assert judge(text).score == pytest.approx(score)


def test_the_signals_say_why() -> None:
    """A score can be explained."""
    assert judge("Will you remember me?").signals == ("phrase", "commitment", "question")


@given(st.text())
def test_a_score_is_between_zero_and_one(text: str) -> None:
    """Whatever is typed."""
    assert 0.0 <= judge(text).score <= 1.0


@given(st.text(), st.text())
def test_saying_more_never_matters_less(first: str, second: str) -> None:
    """Signals only add up."""
    assert judge(f"{first} {second}").score >= judge(first).score
