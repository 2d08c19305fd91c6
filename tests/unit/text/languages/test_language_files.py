"""Language files."""

from collections import Counter
from collections.abc import Mapping

import pytest

from foremind.text.languages.language_files import (
    LABELS,
    LANGUAGES,
    InvalidLanguageFile,
    LineWords,
    RecordWords,
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


_WORDS = {
    "player": "{name} plays",
    "rules": "Quote.",
    "emotions": "Feel {marks}",
    "today": "{weekday} {day} {month} {year}",
    "weekdays": "A B C D E F G",
    "months": "A B C D E F G H I J K L",
}


_LINES = dict.fromkeys(LineWords.__struct_fields__, "x") | {
    "date": "{day} {month} {year}",
    "dated": "{age} {date}",
    "user_said": "{when} {name}",
    "companion_said": "{when}",
    "happened": "{when}",
    "episode": "{when} {topic}",
    "topic": "{topic} {when}",
    "topic_met": "{topic} {count} {when}",
    "question": "{when} {name}",
    "question_again": "{when} {count} {name}",
    "saved": "{when}",
    "saved_by_game": "{when}",
    "said_on": "{date}",
    "recap": "{date}",
    "document": "{title}",
}


def _with_prompt(
    changed: Mapping[str, str] = {},
    lines: Mapping[str, str] = {},
    others: Mapping[str, Mapping[str, str]] = {},
) -> str:
    tables: dict[str, Mapping[str, str]] = {
        "prompt": {**_WORDS, **changed},
        "prompt.lines": {**_LINES, **lines},
        **{f"prompt.{table}": words for table, words in others.items()},
    }
    return _COMPLETE + "".join(
        f"[{table}]\n" + "".join(f'{key} = "{words[key]}"\n' for key in words)
        for table, words in tables.items()
    )


def test_the_words_of_prompts_keep_their_case() -> None:
    """They are optional."""
    prompt = parse_language("xx.toml", _with_prompt()).prompt
    assert prompt is not None
    assert (prompt.rules, prompt.weekdays) == ("Quote.", tuple("ABCDEFG"))
    assert parse_language("xx.toml", _COMPLETE).prompt is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weekdays": "A B"}, "xx.toml: prompt.weekdays: expected 7 words, not 2"),
        ({"months": "A B"}, "xx.toml: prompt.months: expected 12 words, not 2"),
        ({"player": "Ana plays"}, "xx.toml: prompt.player: expected {name}, each once"),
        ({"player": "{name} {"}, "xx.toml: prompt.player: expected {name}, each once"),
        (
            {"today": "{day} {day}"},
            "xx.toml: prompt.today: expected {day}, {month}, {weekday}, {year}, each once",
        ),
    ],
)
def test_unusable_words_of_prompts_are_named(changed: dict[str, str], message: str) -> None:
    """With what was expected."""
    with pytest.raises(InvalidLanguageFile) as raised:
        parse_language("xx.toml", _with_prompt(changed))
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"saved": "saved"}, "prompt.lines.saved: expected {when}, each once"),
        (
            {"date": "{day} {month}"},
            "prompt.lines.date: expected {day}, {month}, {year}, each once",
        ),
        ({"seems": "{who} seems"}, "prompt.lines.seems: expected nothing in braces"),
        ({"seems": "seems }"}, "prompt.lines.seems: expected nothing in braces"),
    ],
)
def test_unusable_words_of_lines_are_named(changed: dict[str, str], message: str) -> None:
    """Also where a brace would have been a place."""
    with pytest.raises(InvalidLanguageFile) as raised:
        parse_language("xx.toml", _with_prompt(lines=changed))
    assert str(raised.value) == f"xx.toml: {message}"


def test_words_of_records_and_labels_may_be_left_out() -> None:
    """Each of them, and all."""
    some = {"records": {"on_day": "Dies {date}:"}, "labels": {"home": "Domus"}}
    for others, on_day, labels in (({}, "", {}), (some, "Dies {date}:", {"home": "Domus"})):
        prompt = parse_language("xx.toml", _with_prompt(others=others)).prompt
        assert prompt is not None
        assert (prompt.records, prompt.labels) == (RecordWords(on_day=on_day), labels)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"records": {"on_day": "Dies"}}, "prompt.records.on_day: expected {date}, each once"),
        (
            {"labels": {"hoem": "Domus"}},
            f"prompt.labels: expected some of {', '.join(sorted(LABELS))}, not 'hoem'",
        ),
    ],
)
def test_unusable_words_of_records_are_named(
    others: dict[str, dict[str, str]], message: str
) -> None:
    """As those of lines are."""
    with pytest.raises(InvalidLanguageFile) as raised:
        parse_language("xx.toml", _with_prompt(others=others))
    assert str(raised.value) == f"xx.toml: {message}"
