"""Tokens are counted by the model's own tokenizer where it is known."""

from pathlib import Path

import pytest

from foremind.embedding.prepare import PreparedModel
from foremind.errors import InvalidFile
from foremind.layers.tokens import counter_for, estimate_tokens


def test_a_known_tokenizer_counts(model: PreparedModel) -> None:
    """As the model will."""
    count = counter_for(str(model.folder / "tokenizer.json"))
    assert count("hello world") == 2
    assert count("") == 0
    assert count("\ud800") >= 0


def test_without_one_four_bytes_are_a_token() -> None:
    """The usual estimate, on the high side."""
    assert counter_for(None) is estimate_tokens
    assert estimate_tokens("12345678") == 3


def test_a_wrong_path_says_what_was_expected(tmp_path: Path) -> None:
    """A tokenizer.json."""
    with pytest.raises(InvalidFile, match=r"tokenizer\.json"):
        counter_for(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InvalidFile):
        counter_for(str(tmp_path / "bad.json"))
