"""Tokens are counted by the model's own tokenizer where it is known."""

import sys
from pathlib import Path

import pytest

from foremind.domain.errors import InvalidFile
from foremind.llm.prompt.token_counter import counter_for, estimate_tokens, load_counter
from foremind.retrieval.embedding.conversion import ConvertedEncoder


def test_a_known_tokenizer_counts(model: ConvertedEncoder) -> None:
    """As the model will."""
    count = counter_for(str(model.folder / "tokenizer.json"))
    assert count("hello world") == 2
    assert count("") == 0
    assert count("\ud800") >= 0


def test_without_one_three_bytes_are_a_token() -> None:
    """The usual estimate, on the high side."""
    assert counter_for(None) is estimate_tokens
    assert estimate_tokens("12345678") == 3


def test_a_wrong_path_says_what_was_expected(tmp_path: Path) -> None:
    """A tokenizer.json."""
    with pytest.raises(InvalidFile, match=r"tokenizer\.json"):
        load_counter(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InvalidFile):
        load_counter(str(tmp_path / "bad.json"))


def test_counting_keeps_no_text(model: ConvertedEncoder) -> None:
    """What was counted may be forgotten later: nothing of it is held, though its count is known."""
    count = counter_for(str(model.folder / "tokenizer.json"))
    text = "".join(("I buried the ", "xylophone" * 3))
    before = sys.getrefcount(text)
    assert count(text) == count(text) > 0
    assert sys.getrefcount(text) == before


def test_a_tokenizer_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    """Tokens are estimated then."""
    assert counter_for(str(tmp_path / "gone.json")) is estimate_tokens
