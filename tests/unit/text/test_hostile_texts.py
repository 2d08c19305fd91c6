"""Whatever a player sends is read in time linear in its length.

An expression that backtracks holds the interpreter's lock, and with it everybody else's messages;
and as the message is stored, so it would again after a restart.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

import pytest

from foremind.background.extractive_summary import sentences_of
from foremind.memory.erasure.scope import identifying_terms
from foremind.memory.scoring import minimum_scores_in, signals_in, significance_by_words
from foremind.memory.short_answers import asks_about_listener, is_short_answer
from foremind.text.languages.utterances import (
    asks,
    has_content,
    is_pure_question,
    is_question,
    requests,
    states,
)
from foremind.text.mentions import parse_mention
from foremind.text.pin_requests import text_to_pin
from foremind.text.sentences import sentence_keys_in, sentences_in
from foremind.text.statements.extraction import statements_in
from foremind.text.time_expressions import spans_in
from foremind.text.tokenization import terms_of

_CHARS = 8000  # of a message, unless the operator allows more
_MAX_S = 2.0  # of processor time; each takes less than a tenth, and what is quadratic, seconds
_HUNG_S = 10
_NOW = datetime(2026, 5, 20, tzinfo=UTC)

#: What texts are made of by repetition: what expressions look for the end of, most of all.
UNITS = (
    *" \t\n.,;:?!'\"`~@#$%&*+-_=/\\|<>()[]{}aA1é私는ก😀“”‘’…",
    "\u0301", "\u200b", "a ", "A ", "1 ", "a.", "a,", "a-", "a'", "a@", "@a", "a@a.", "_a", "*a ",
    "a_", "1.", "1,", "1:", "1/", "a1", "Ab ", "A. ", "a? ", "... ", "``", "**", '"a" ', "(a", "<a",
    "[a](", "> ", "- a\n", "A: ", "a:\n", " ,", "  a", "http://", "i ", "I'm ", "my ", "and ",
    "not ", "I am ", "I live in ", "my sister's ", "on Monday ", "2 days ago ", "last year ",
    "10:30 ", "1990s ", "remember ", "ok ", ", ok", "yes ", "Ana Bo ", "don't ", "is it? ", "the ",
    "of ", "in 1 ", "me ",
)  # fmt: skip

READERS: dict[str, Callable[[str], object]] = {
    reader.__name__: reader
    for reader in (
        signals_in, minimum_scores_in, significance_by_words, statements_in, text_to_pin,
        sentences_in, sentence_keys_in, sentences_of, is_short_answer, identifying_terms, terms_of,
        asks, has_content, is_pure_question, is_question, requests, states,
    )
} | {
    "spans_in": lambda text: spans_in(text, _NOW),
    "parse_mention": lambda text: parse_mention(text, None),
    "requests_in_portuguese": lambda text: requests(text, "pt"),
    "asks_about_listener": lambda text: asks_about_listener(text, "user"),
}  # fmt: skip


@contextmanager
def interrupted_after(seconds: float, text: str) -> Iterator[None]:
    """Fail after so many seconds; expressions look for signals now and then."""

    def fail(_: int, __: FrameType | None) -> None:
        pytest.fail(f"{text[:20]!r} … is read for more than {seconds:g} s", pytrace=False)

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", READERS)
def test_hostile_texts_are_read_as_fast_as_others(name: str) -> None:
    """Each unit over and over, by itself and between words."""
    read = READERS[name]
    read("I live in Lisbon, and my sister too. Are you well?")  # what is compiled once
    for unit in UNITS:
        repeated = unit * (_CHARS // len(unit))
        for text in (repeated, f"Ana {repeated[: _CHARS - 20]}x, I like tea."):
            begun = time.thread_time()
            with interrupted_after(_HUNG_S, text):
                read(text)
            assert time.thread_time() - begun < _MAX_S, (unit, text[:20])
