"""The examples in CONTRIBUTING.md are quoted from the code."""

import re

import pytest

from tests.conftest import ROOT

_QUOTE = re.compile(r"From\s`(?P<file>[^`]+)`:\n\n```text\n(?P<lines>.*?)^```$", re.S | re.M)
QUOTES = list(_QUOTE.finditer((ROOT / "CONTRIBUTING.md").read_text("utf-8")))


def test_every_example_names_its_file() -> None:
    """No block of text is anything but a quotation."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert len(QUOTES) == len(re.findall(r"^```text$", text, re.MULTILINE)) > 5


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: quote["file"])
def test_every_example_is_in_its_file(quote: re.Match[str]) -> None:
    """Word for word."""
    assert quote["lines"] in (ROOT / quote["file"]).read_text("utf-8")
