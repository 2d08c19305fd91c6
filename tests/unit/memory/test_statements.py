"""What somebody says of themselves: clean values, and nothing that is not said of oneself."""

import pytest
from training.statements.measure import HALVES, Half, read_statements, score_of

from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in

_LEAST_PRECISION, _LEAST_RECALL = 0.9, 0.7


def told(text: str) -> list[tuple[str, str]]:
    """The titles and values of what a text states."""
    return [(each.title, each.content) for each in statements_in(text) if each.holds]


@pytest.mark.parametrize("half", HALVES)
def test_rules_read_labelled_statements(half: Half) -> None:
    """Those that they were adjusted on, and those that nobody looked at meanwhile."""
    labelled = [statement for statement in read_statements() if statement.half == half]
    score = score_of(labelled)
    assert score.precision >= _LEAST_PRECISION, score
    assert score.recall >= _LEAST_RECALL, score


def test_the_labelled_statements_are_many_and_of_many_kinds() -> None:
    """A measure of little would say little."""
    labelled = read_statements()
    assert len({each.text for each in labelled}) == len(labelled) >= 150
    assert len({title for each in labelled for title, _ in each.entries}) >= 12
    assert sum(not each.entries for each in labelled) >= 100


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
    ],
)
def test_a_value_is_what_was_said_and_no_more(text: str, title: str, value: str) -> None:
    """As a person would write it into a profile."""
    assert (title, value) in told(text)


@pytest.mark.parametrize(
    "text",
    [
        "She said I live in a dream",
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
def test_what_is_not_said_of_oneself_states_nothing(text: str) -> None:
    """Others, quotations, denials, wishes, questions."""
    assert told(text) == []


def test_what_no_longer_holds_is_taken_back() -> None:
    """By its value; a pet that died, whatever its name."""
    assert statements_in("I don't live in Rome any more") == [
        Statement("home", "Rome", holds=False)
    ]
    assert statements_in("My dog has died") == [Statement("pets", "", "dog", holds=False)]


@pytest.mark.parametrize(
    "said", ["i have a ", "I'm a ", "my favourite a is ", "I like the ", "i " * 5]
)
def test_a_hostile_text_takes_no_long_time(said: str) -> None:
    """As much as a message may hold is read as quickly as anything, whatever stands in it."""
    assert len(statements_in(said * 16_000)) < 1000
