"""Statements of speakers about themselves: exact values, and no false positives."""

import pytest
from training.statements.measure_rules import HALVES, Half, read_statements, score_of

from foremind.text.statements import vocabulary
from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in

_MIN_PRECISION, _MIN_RECALL = 0.9, 0.7


def stated(text: str) -> list[tuple[str, str]]:
    """The titles and values of what a text states."""
    return [(found.title, found.content) for found in statements_in(text) if found.holds]


@pytest.mark.parametrize("half", HALVES)
def test_rules_reach_the_required_precision_and_recall(half: Half) -> None:
    """On the labelled statements they were tuned on, and on those held out."""
    labelled = [statement for statement in read_statements() if statement.half == half]
    score = score_of(labelled)
    assert score.precision >= _MIN_PRECISION, score
    assert score.recall >= _MIN_RECALL, score


def test_the_labelled_statements_are_many_and_diverse() -> None:
    """Otherwise precision and recall would mean little."""
    labelled = read_statements()
    assert len({statement.text for statement in labelled}) == len(labelled) >= 150
    assert len({title for statement in labelled for title, _ in statement.entries}) >= 12
    assert sum(not statement.entries for statement in labelled) >= 100


@pytest.mark.parametrize(
    ("text", "title", "value"),
    [
        ("I've just moved to Porto, near the river.", "home", "Porto"),
        ("Call me Sam", "name", "Sam"),
        ("don’t call me honey", "manner", "don't call me honey"),
        ("Please keep your answers short!", "manner", "keep your answers short"),
        ("I prefer tea to coffee", "prefers", "tea to coffee"),
        ("I'm lactose intolerant", "health", "lactose intolerant"),
        ("I hate waiting in line", "dislikes", "waiting in line"),
        ("My dog is called Scout", "pets", "dog Scout"),
        ("My boat is called Aurora", "name of boat", "Aurora"),
        ("My favourite colour is dark green", "favourite colour", "dark green"),
        ("My name is Ana, what's yours?", "name", "Ana"),
        ("I think I live in Porto now", "home", "Porto"),
        ("Don't you dare call me honey", "manner", "don't call me honey"),
        ("I'm married to Ben", "status", "married"),
        ("I'm divorced from my husband", "status", "divorced"),
        ("I never liked olives", "dislikes", "olives"),
        ("I've never been into football", "dislikes", "football"),
        ("I used to hate olives but now I love them", "likes", "olives"),
        ("I used to live in Rome but now I live in Turin", "home", "Turin"),
        ("Olives aren't my thing", "dislikes", "Olives"),
        ("I live for music", "likes", "music"),
    ],
)
def test_a_value_is_exactly_what_was_said(text: str, title: str, value: str) -> None:
    """As a person would write it into a profile."""
    assert (title, value) in stated(text)


@pytest.mark.parametrize(
    "text",
    [
        "She said I live in a dream",
        "Isn't my dog called Scout",
        "don't i have a dog",
        "Is my violin still called Esmeralda",
        "I'm married to my work",
        "I'm engaged in a long quest",
        "I got separated from my group",
        "I'm in a relationship with my bed",
        "I'm allergic to getting up early",
        "I'm a terrible cook",
        "I've got two fish in the freezer",
        "I never liked olives until I tried these",
        "I never loved a game so much",
        "“I live in Venice”, said the sailor",
        "My brother lives in Oslo",
        "I don't live in Rome any more",
        "If I lived in Rome, I would eat ice cream",
        "I wish I had a dog",
        "Do I live in a bubble?",
        "You live in Porto, right?",
        "I love the friends I have",
        "I'm not a nurse",
    ],
)
def test_what_is_not_about_the_speaker_states_nothing(text: str) -> None:
    """Other people, quotations, denials, wishes, questions."""
    assert stated(text) == []


def test_what_no_longer_holds_is_retracted() -> None:
    """By its value; a pet that died, whatever its name."""
    assert statements_in("I don't live in Rome any more") == [
        Statement("home", "Rome", holds=False)
    ]
    assert statements_in("My dog has died") == [Statement("pets", "", "dog", holds=False)]


@pytest.mark.parametrize(
    "repeated", ["i have a ", "I'm a ", "my favourite a is ", "I like the ", "i " * 5]
)
def test_a_hostile_text_is_read_quickly(repeated: str) -> None:
    """No text of the maximum length of a message causes catastrophic backtracking."""
    assert len(statements_in(repeated * 16_000)) < 1000


def test_no_entry_of_a_word_list_spans_lines() -> None:
    """As "type 2 diabetes" did, which then never matched."""
    lists = {
        name: words for name, words in vars(vocabulary).items() if isinstance(words, frozenset)
    }
    assert {"KIN", "TRADES"} <= lists.keys()
    for name, words in lists.items():
        assert words == {" ".join(word.split()) for word in words}, name


def test_other_languages_are_not_read_as_english() -> None:
    """The same words mean something else."""
    assert statements_in("I'm Ana")
    assert statements_in("Ich habe gesagt: I'm Ana, das ist mein Name") == []
