"""What asks to have something pinned."""

import pytest

from foremind.text.languages.language_files import LANGUAGES
from foremind.text.pin_requests import text_to_pin


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("save this: the gate code is 4711", "the gate code is 4711"),
        ("please save this for later: two\nlines", "two\nlines"),
        ("Can you write this down: oats, milk", "oats, milk"),
        ("Merk dir das bitte: Der Code ist 4711", "Der Code ist 4711"),
        ("guarda esto por favor: la llave", "la llave"),
        ("Note ça s'il te plaît : le code", "le code"),
        ("запомни, пожалуйста: код 4711", "код 4711"),
        ("これを保存して：鍵は鉢の下", "鍵は鉢の下"),
        ("请记住：密码是1234", "密码是1234"),
        ("save this", None),
        ("Don't save this: it is wrong", None),
        ("He will save that: a promise", None),
        ("keep it, I don't need it", None),
    ],
)
def test_what_follows_a_request_to_save_is_pinned(text: str, pinned: str | None) -> None:
    """In the languages that there are files for."""
    assert text_to_pin(text) == pinned


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_words_for_it(language: str) -> None:
    """Before a colon, in capitals or not."""
    assert LANGUAGES[language].pins
    for asked in LANGUAGES[language].pins:
        assert text_to_pin(f"{asked.capitalize()}: 4711") == "4711"
