"""Tokens are counted with the model's own tokenizer if it is configured."""

import sys
from pathlib import Path

import pytest

from foremind.domain.errors import InvalidFile
from foremind.llm.prompt.token_counter import counter_for, estimate_tokens, load_counter
from foremind_models import ConvertedEncoder


def test_a_known_tokenizer_counts(model: ConvertedEncoder) -> None:
    """As the model does."""
    count = counter_for(str(model.folder / "tokenizer.json"))
    assert count("hello world") == 2
    assert count("") == 0
    assert count("\ud800") >= 0


def test_without_one_three_bytes_are_a_token() -> None:
    """The usual estimate, erring on the high side."""
    assert counter_for(None) is estimate_tokens
    assert estimate_tokens("12345678") == 3


def test_an_invalid_path_says_what_was_expected(tmp_path: Path) -> None:
    """A tokenizer.json."""
    with pytest.raises(InvalidFile, match=r"tokenizer\.json"):
        load_counter(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InvalidFile):
        load_counter(str(tmp_path / "bad.json"))


def test_counting_keeps_no_text(model: ConvertedEncoder) -> None:
    """The text may be erased later: only its count is cached."""
    count = counter_for(str(model.folder / "tokenizer.json"))
    text = "".join(("I buried the ", "xylophone" * 3))
    before = sys.getrefcount(text)
    assert count(text) == count(text) > 0
    assert sys.getrefcount(text) == before


def test_a_missing_tokenizer_falls_back_to_the_estimate(tmp_path: Path) -> None:
    """It may be deleted after it was configured."""
    assert counter_for(str(tmp_path / "gone.json")) is estimate_tokens
