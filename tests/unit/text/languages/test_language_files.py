"""Language files."""

from collections import Counter

import pytest

from foremind.text.languages.language_files import (
    LANGUAGES,
    InvalidLanguageFile,
    parse_language,
)

_COMPLETE = """
code = "xx"
script = "latin"
stop_words = "the Of"
question_words = "what"
first_person = "I"
fillers = "hello"
"""


def test_languages_have_the_words_that_rules_need() -> None:
    """Every file that is shipped."""
    assert {"de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"} == (
        set(LANGUAGES)
    )
    for language in LANGUAGES.values():
        assert language.stop_words and language.question_words and language.first_person


def test_words_are_read_in_lower_case() -> None:
    """They are compared with lower-cased texts."""
    language = parse_language("xx.toml", _COMPLETE)
    assert language.stop_words == frozenset({"the", "of"})
    assert language.first_person == frozenset({"i"})
    assert (language.stemmer, language.suffixes) == (None, ())


def test_every_synonym_can_match() -> None:
    """It is a term of its language, and another word is found by it."""
    for language in LANGUAGES.values():
        assert language.function_words.isdisjoint(language.synonyms), language.code
        members = Counter(first for firsts in language.synonyms.values() for first in firsts)
        assert not [first for first, count in members.items() if count < 2], language.code


def test_a_word_may_have_several_sets_of_synonyms() -> None:
    """Each is named by its first word."""
    language = parse_language("xx.toml", _COMPLETE + 'synonyms = """\nDad papa\nkin dad mum"""')
    assert language.synonyms["dad"] == {"dad", "kin"}
    assert language.synonyms["mum"] == {"kin"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("code = ", "xx.toml: Invalid value"),
        (_COMPLETE.replace("stop_words", "stopwords"), "xx.toml: Object contains unknown field"),
        (_COMPLETE.replace('fillers = "hello"', ""), "missing required field `fillers`"),
        (_COMPLETE.replace('"hello"', "3"), r"Expected `str`, got `int` - at `\$.fillers`"),
        (_COMPLETE.replace("latin", "runes"), r"Invalid enum value 'runes' - at `\$.script`"),
        (_COMPLETE.replace("xx", "yy"), "xx.toml: code: expected the name of the file, not 'yy'"),
        (_COMPLETE + 'stemmer = "elvish"', "xx.toml: stemmer: expected one of .*, not 'elvish'"),
    ],
)
def test_an_invalid_file_is_named_with_its_field(content: str, message: str) -> None:
    """And with what is expected."""
    with pytest.raises(InvalidLanguageFile, match=message):
        parse_language("xx.toml", content)
