"""The texts of the page and the tavern: every language has every one, and none is left over."""

import json
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from foremind.domain.record import MadeBy
from foremind.domain.turn import Outcome
from foremind.domain.world import How, Volume
from foremind.memory.scoring import MINIMUM_SCORES, SIGNALS
from foremind.text.languages.language_files import LABELS, LANGUAGES
from tests.conftest import ROOT

_PAGE = ROOT / "client_demo"
_LANGUAGES = sorted(path.stem for path in (_PAGE / "languages").glob("*.json"))
#: Keys that are put together from a part and what the server says.
_FAMILIES = (
    "about.", "action.", "actor.", "context.", "label.", "lamp.", "layer.", "made-by.", "race.",
    "reason.", "role.", "status.", "subject.", "tavern.how.", "tavern.me.", "tavern.they.",
    "tavern.trade.", "tavern.you.", "timeline.ahead.",
)  # fmt: skip
_EMPTY = {"timeline.ahead.nothing"}


def _texts(language: str) -> dict[str, str]:
    file = _PAGE / "languages" / f"{language}.json"
    texts: dict[str, str] = json.loads(file.read_text("utf-8"))
    return texts


@cache
def _code() -> str:
    sources: list[Path] = [*_PAGE.glob("**/*.js"), *_PAGE.glob("*.html")]
    return "\n".join(path.read_text("utf-8") for path in sources)


def _placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{\w+\}", text))


def test_the_page_knows_the_languages_that_there_are_files_for() -> None:
    """English is the fallback and is not listed."""
    listed = re.search(r"const TRANSLATED = (\[.*?\]);", _code())
    assert listed
    assert json.loads(listed[1]) == [name for name in _LANGUAGES if name != "en"]
    assert {"de", "es", "fr", "it", "ja", "ko", "pt", "zh"} <= set(_LANGUAGES)


@pytest.mark.parametrize("language", _LANGUAGES)
def test_a_language_has_every_text(language: str) -> None:
    """In the order of the English ones, with the same values in braces."""
    english, texts = _texts("en"), _texts(language)
    assert list(texts) == list(english)
    for key, text in texts.items():
        assert _placeholders(text) == _placeholders(english[key]), key
        assert bool(text.strip()) == (key not in _EMPTY), key


def test_every_text_that_the_page_says_is_there() -> None:
    """Those named in the document, those said, and those that are counted."""
    english = set(_texts("en"))
    named = set(re.findall(r'data-(?:text|label|hint)="([^"]+)"', _code()))
    said = set(re.findall(r'\bsay\("([^"]+)"', _code()))
    counted = {
        f"{key}.{form}"
        for key in re.findall(r'\bsayCount\("([^"]+)"', _code())
        for form in ("one", "other")
    }
    assert len(named) > 40
    assert len(said) > 60
    assert (named | said | counted) <= english


_NAMED = {
    "context": get_args(Outcome),
    "label": LABELS,
    "made-by": get_args(MadeBy),
    "reason": {
        *(signal.name for signal in SIGNALS),
        *(minimum.name for minimum in MINIMUM_SCORES),
    },
    "tavern.how": get_args(How),
    **{f"tavern.{family}": get_args(Volume) for family in ("me", "they", "volume", "you")},
}


@pytest.mark.parametrize("family", sorted(_NAMED))
def test_what_the_server_names_has_a_text(family: str) -> None:
    """Values are shown in the page's language, not as the protocol spells them."""
    assert {f"{family}.{name}" for name in _NAMED[family]} <= set(_texts("en"))


@pytest.mark.parametrize("language", [name for name in _LANGUAGES if name != "en"])
def test_labels_are_those_of_the_language(language: str) -> None:
    """A profile's slots and a note's kinds are called alike on the page and in prompts."""
    own, texts = LANGUAGES[language].prompt, _texts(language)
    assert own is not None
    assert {label: texts[f"label.{label}"] for label in LABELS} == own.labels


def test_no_text_is_left_over() -> None:
    """Each is named in the code, as it is or as one of a family."""
    literals = set(re.findall(r'"([a-z][\w.-]*)"', _code()))
    counted = {f"{key}.{form}" for key in literals for form in ("one", "other")}
    left = {key for key in _texts("en") if key not in literals | counted}
    assert not {key for key in left if not key.startswith(_FAMILIES)}
