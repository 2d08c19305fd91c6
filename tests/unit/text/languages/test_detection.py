"""The language of a text."""

import pytest

from foremind.text.languages.detection import language_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Mein Hund heißt Bello", "de"),
        ("Ich liebe Katzen", "de"),
        ("Ma sœur habite à Lyon", "fr"),
        ("J'ai un chat", "fr"),
        ("Trabajo de enfermera en Bilbao", "es"),
        ("¿Cómo se llama mi perro?", "es"),
        ("Qual é o nome do meu cachorro?", "pt"),
        ("Ho un gatto", "it"),
        ("Come si chiama il mio cane?", "it"),
        ("Mijn hond heet Bello", "nl"),
        ("Mój pies nazywa się Burek", "pl"),
        ("Köpeğimin adı Karabaş", "tr"),
        ("Меня зовут Анна", "ru"),
        ("私の犬の名前はポチです", "ja"),
        ("PythonとLinuxが好きです", "ja"),
        ("我养了一只狗", "zh"),
        ("제 강아지 이름은 초코예요", "ko"),
        ("ฉันมีแมวสองตัว", "th"),
    ],
)
def test_short_texts_tell_their_language(text: str, language: str) -> None:
    """Chat messages are short."""
    assert language_of(text) == language


@pytest.mark.parametrize("speaker", ["bo", "jo", "no", "Eu", "ola (whispering to you)"])
def test_who_says_something_does_not_tell_its_language(speaker: str) -> None:
    """A player may be called like a word of another language."""
    for text, language in (("Good evening, Mara", "en"), ("Dobry wieczór, Mara", "pl")):
        assert language_of(f"{speaker}: {text}") == language


@pytest.mark.parametrize(
    "text",
    [
        "I was in a war",
        "The man with the hat will die",
        "How do you say ありがとう in Japanese?",
        "José and Zoë had a café in San Sebastián",
        "Los Angeles trip",
        "Ha ha, um, see ya",
        "look at https://example.com/de/das/ist/ein/hund",
        "D1:3",
    ],
)
def test_names_and_shared_words_leave_english_english(text: str) -> None:
    """Words that only look like another language's decide nothing."""
    assert language_of(text) == "en"


@pytest.mark.parametrize("text", ["", "Bello", "12:30", "🙂", "Ελλάδα"])
def test_what_tells_nothing_is_in_the_fallback(text: str) -> None:
    """English if none is given."""
    assert language_of(text) == "en"
    assert language_of(text, "de") == "de"


@pytest.mark.parametrize(
    ("text", "fallback", "language"),
    [
        ("also gut", "de", "de"),
        ("also gut", "en", "en"),
        ("I was in a war", "de", "en"),
        ("Ich liebe Katzen", "fr", "de"),
        ("私の犬の名前はポチです", "de", "ja"),
        ("Bello", "sv", "en"),  # there is no file for Swedish
    ],
)
def test_the_fallback_decides_only_where_the_words_do_not(
    text: str, fallback: str, language: str
) -> None:
    """As many words may speak for one language as for another."""
    assert language_of(text, fallback) == language
