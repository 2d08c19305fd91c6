"""Facts told in several languages, and the evaluation that measures what becomes of them."""

from pathlib import Path

import pytest

from foremind.app.core import Core
from foremind.domain.errors import InvalidFile
from foremind_eval.language_recall import (
    LanguageSet,
    MissedQuestion,
    count_language_steps,
    language_files,
    measure_languages,
    read_language_set,
    read_language_sets,
)

LANGUAGES = {"de", "en", "es", "fr", "it", "ja", "ko", "pt", "zh"}


def test_there_is_a_set_of_every_language() -> None:
    """And one is read by its code."""
    assert set(language_files()) == LANGUAGES
    assert {told.language for told in read_language_sets(None, None)} == LANGUAGES
    assert [told.language for told in read_language_sets(None, ["ja", "de"])] == ["ja", "de"]


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_set_is_well_formed(language: str) -> None:
    """Forty facts, each with a question of its own, and ten fillers; nothing is said twice.

    About a third of the questions are in other words than the facts, in every language alike.
    """
    told = read_language_set(language_files()[language])
    assert told.language == language
    assert len(told.facts) == 40
    assert list(told.questions) == list(told.facts)
    assert len(told.fillers) == 10
    assert 10 <= len({*told.other_words}) == len(told.other_words) <= 12
    texts = [*told.facts.values(), *told.questions.values(), *told.fillers]
    assert len({*texts}) == len(texts)
    assert all(text.strip() == text and text for text in texts)


async def test_what_is_kept_and_found_is_counted(built: Core) -> None:
    """Of facts, fillers and questions; a question whose fact is not kept is not found."""
    told = LanguageSet(
        language="en",
        facts={"dog": "I have a dog called Biscuit.", "job": "I work as a nurse.", "none": "ok"},
        questions={"dog": "What is my dog called?", "none": "What did I say?"},
        fillers=["lol", "thanks"],
        other_words=["none"],
    )
    done: list[int] = []
    (report,) = await measure_languages(built, [told], done.append)
    assert sum(done) == count_language_steps([told]) == 7
    assert (report.facts, report.questions, report.fillers) == (3, 2, 2)
    assert (report.kept, report.fillers_kept) == (0.6667, 0.0)
    assert (report.found_at_3, report.found_at_5) == (0.5, 0.5)
    assert report.found_in_other_words == 0.0
    assert report.lost == ["none"]
    assert report.missed == [MissedQuestion("none", "not kept")]


async def test_a_question_may_recall_nothing_or_others(built: Core) -> None:
    """Both are told apart."""
    told = LanguageSet(
        language="en",
        facts={
            "cousin": "My cousin Nils plays the violin in Oslo.",
            "teacher": "I took violin lessons from a strict old lady.",
            "price": "My first violin cost more than our car.",
            "string": "A string of my violin broke during the concert.",
            "dream": "I want to build a violin myself one day.",
            "lost": "I once left my violin on a train to Hamburg.",
            "lamp": "I bought a green lamp.",
        },
        questions={"lamp": "What is it with me and my violin?", "cousin": "zzz qqq"},
        fillers=[],
    )
    (report,) = await measure_languages(built, [told], lambda _: None)
    assert (report.fillers_kept, report.found_in_other_words) == (None, None)
    assert report.missed == [
        MissedQuestion("lamp", "others first"),
        MissedQuestion("cousin", "nothing recalled"),
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("facts = 1", "facts"),
        ("fillers = []\n[facts]\n[questions]", "facts: expected at least one"),
        ('fillers = []\n[facts]\na = "A."\n[questions]', "questions: expected at least one"),
        ('fillers = []\n[facts]\na = "A."\n[questions]\nb = "?"', "questions: .* ids of facts"),
        ('fillers = []\n[facts]\na = "A."\n[questions]\na = "?"\na = "?"', "xx.toml"),
        (
            'fillers = []\nother_words = ["b"]\n[facts]\na = "A."\n[questions]\na = "?"',
            "other_words: expected ids of questions",
        ),
        ('other = []\n[facts]\na = "A."', "other"),
    ],
)
def test_a_wrong_set_names_the_field(text: str, named: str, tmp_path: Path) -> None:
    """And what was expected."""
    path = tmp_path / "xx.toml"
    path.write_text(text)
    with pytest.raises(InvalidFile, match=named):
        read_language_sets(path, None)


@pytest.mark.parametrize("language", sorted(LANGUAGES - {"en"}))
async def test_what_is_told_in_a_language_is_kept_and_found(built: Core, language: str) -> None:
    """Nearly all facts, and seven of eight questions that have a word of their fact."""
    (told,) = read_language_sets(None, [language])
    (report,) = await measure_languages(built, [told], lambda _: None)
    assert report.kept >= 0.95, report.lost
    in_its_words = told.questions.keys() - set(told.other_words)
    missed = in_its_words & {question.id for question in report.missed}
    assert len(missed) <= len(in_its_words) / 8, missed


def test_an_unknown_language_is_a_clear_error() -> None:
    """It names the languages that there are."""
    with pytest.raises(InvalidFile, match=r"expected de, en, .* not tlh"):
        read_language_sets(None, ["de", "tlh"])
