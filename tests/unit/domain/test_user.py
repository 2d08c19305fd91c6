"""The language that a client says."""

import pytest

from foremind.domain.errors import InvalidMessage
from foremind.domain.user import parse_language


@pytest.mark.parametrize(
    ("tag", "language"),
    [(None, None), ("de", "de"), ("pt-BR", "pt"), ("zh-Hant-TW", "zh"), ("EN", "en")],
)
def test_the_first_subtag_is_the_language(tag: str | None, language: str | None) -> None:
    """What follows is script, region and variant."""
    assert parse_language(tag) == language


@pytest.mark.parametrize("tag", ["", "d", "de_DE", "d3", "дe", "de-", "de--AT", "de-" + "a" * 9])
def test_anything_else_is_refused(tag: str) -> None:
    """The error names the field and what was expected."""
    with pytest.raises(InvalidMessage, match="language: expected a BCP 47 tag such as de or pt-BR"):
        parse_language(tag)
