"""How significant a turn is, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.companion_rules import SignificanceRules
from foremind.memory.scoring import score_from_rating, score_significance

PLAIN = SignificanceRules()


@pytest.mark.parametrize(
    ("text", "minimum"),
    [
        ("My name is Ines", 0.85),
        ("please call me Bart", 0.85),
        ("My goal is to run a marathon", 0.75),
        ("Remind me to call the dentist", 0.75),
        ("I want to learn to sail", 0.75),
        ("I'm allergic to nuts", 0.65),
        ("I can never work on Saturdays", 0.65),
        ("my favourite colour is green", 0.60),
        ("I really like old westerns", 0.60),
        ("I’m saving for a boat", 0.75),
        ("my names ana", 0.85),
        ("dont call me sweetie", 0.60),
        ("Im vegan", 0.65),
        ("i dont eat meat", 0.65),
        ("we're saving for a boat", 0.75),
        ("btw im super allergic to peanuts", 0.65),
        ("I am severely lactose intolerant", 0.65),
        ("Rome is the place I want to visit once", 0.75),
        ("I love to travel. Last year I visited Italy, for example.", 0.60),
        ("My favourite character is Aragorn. I want to become a **ranger**, too.", 0.75),
        ("everyone calls me Al", 0.85),
        ("I'm really, really allergic to cats", 0.65),
        ("I've got a really bad peanut allergy", 0.65),
    ],
)
def test_statements_about_oneself_have_published_minimum_scores(text: str, minimum: float) -> None:
    """Names, goals and reminders, limits, tastes."""
    assert score_significance(text, None, PLAIN).score == minimum


@pytest.mark.parametrize(
    "text",
    ["I can't wait!", "I can't believe it", "I want to hear more", "I love that", "call me later"],
)
def test_courtesies_have_no_minimum_score(text: str) -> None:
    """They look like limits, goals and tastes, but are not."""
    assert score_significance(text, -5.0, PLAIN).score < 0.30


@pytest.mark.parametrize(
    "text",
    [
        'lol imagine i said "my name is Batman and i live in a cave"',
        "> My name is Ana",
        "*My name is Mor of the dark forest*",
        "Can you say 'my name is Ana' in Portuguese?",
        "Translate to German: I never eat meat",
        "Translate this to German:\nI never eat meat. My name is Ana.",
        "It may be old memories or places I wanna go to",
        "Those are some of the things I love about her",
        "my boss wrote me this: I never eat meat and my name is Bob",
        "call me a cab",
    ],
)
def test_what_is_quoted_or_played_has_no_minimum_score(text: str) -> None:
    """It would never fade."""
    assert score_significance(text, None, PLAIN).score < 0.60


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("I have a dog called Biscuit", 0.45),
        ("the ferry sank near the harbour", 0.35),
        ("haha yeah", 0.0),
        ("where is the ferry?", 0.1),
    ],
)
def test_a_model_without_a_classifier_keeps_what_is_stated(text: str, score: float) -> None:
    """As in languages that a classifier was not trained on; signals alone would keep little."""
    assert score_significance(text, None, PLAIN).score == score


def test_the_largest_of_signals_minimum_and_classifier_counts() -> None:
    """And every reason is named, largest first."""
    verdict = score_significance("I promise my favourite is rain", 0.5, PLAIN)
    assert verdict.score == 0.60
    assert [reason.name for reason in verdict.reasons] == ["preference", "learned", "phrase"]


def test_the_decision_boundary_is_the_default_threshold() -> None:
    """Even odds score 0.30, certainty 0.60; only the rules score higher."""
    assert score_significance("The tide", 0.0, PLAIN).score == 0.30
    assert score_significance("The tide", 9.0, PLAIN).score == 0.60
    assert score_significance("hmm", -3.0, PLAIN).score == 0.0


def test_a_companion_has_rules_of_its_own() -> None:
    """Phrases, weights, minimum scores, and whether the classifier counts."""
    rules = SignificanceRules(
        phrases={"Moon Iron": 0.7}, signals={"question": 0.4}, floors={"goal": 0.2}, learned=False
    )
    assert score_significance("three bars of moon iron", None, rules).score == 0.7
    assert score_significance("Where?", None, rules).score == 0.4
    assert score_significance("I want to leave", None, rules).score == 0.2
    assert score_significance("The tide", 9.0, rules).score == 0.0


def test_a_language_models_rating_is_never_below_a_minimum_score() -> None:
    """It replaces the signals and the classifier."""
    assert score_from_rating("I promise to help", 1, PLAIN).score == 0.1
    assert score_from_rating("My name is Ines", 1, PLAIN).score == 0.85
    assert score_from_rating("The tide", 9, PLAIN).reasons[0].name == "model"


@given(st.text(), st.one_of(st.none(), st.floats(-50, 50)))
def test_a_score_is_between_zero_and_one(text: str, learned: float | None) -> None:
    """For any text; and a score above zero has a reason."""
    verdict = score_significance(text, learned, PLAIN)
    assert 0.0 <= verdict.score <= 1.0
    assert verdict.score == 0 or max(reason.score for reason in verdict.reasons) > 0


@pytest.mark.parametrize(
    ("rating", "score"), [(1, 0.1), (2, 0.2), (3, 0.3), (8, 0.8), (9, 0.9), (10, 1.0)]
)
def test_the_published_scale_is_a_tenth_of_itself(rating: int, score: float) -> None:
    """By default mundane turns are not kept, and poignant ones never fade."""
    assert score_from_rating("The tide", rating, PLAIN).score == pytest.approx(score)


def test_the_words_of_a_question_count_for_nothing() -> None:
    """What the classifier makes of it does, and what it answers."""
    asked = "Did I not say that I like olives and will remember my goal"
    rules = SignificanceRules()
    assert score_significance(asked, None, rules).score >= 0.6
    assert score_significance(asked, None, rules, asks=True).score == 0
    assert score_significance(asked, 0.0, rules, asks=True).score == pytest.approx(0.3)
    assert score_from_rating(asked, 2, rules, asks=True).score == pytest.approx(0.2)


@pytest.mark.parametrize("learned", [None, -5.0, 5.0])
@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Mein Hund heißt Bello", 0.45),
        ("Der Hund war gestern krank", 0.35),
        ("私の犬の名前はポチです", 0.45),
        ("Wie heißt mein Hund?", 0.1),
        ("ありがとうございます", 0.0),
        ("Ich will alone remember my favourite", 0.45),
    ],
)
def test_no_english_rule_scores_other_languages(
    text: str, score: float, learned: float | None
) -> None:
    """What is stated scores, and more about the speaker; patterns and the classifier do not."""
    assert score_significance(text, learned, PLAIN).score == pytest.approx(score)


def test_a_companion_can_refuse_the_rules_of_languages() -> None:
    """With the classifier, whose place they take."""
    rules = SignificanceRules(learned=False)
    assert score_significance("Mein Hund heißt Bello", None, rules).score == 0


def test_a_long_plan_is_no_repetition() -> None:
    """Although most of its words occur often; one word over and over is."""
    days = (
        f"On day {n} we do {n} squats, {n} rows, {n} lunges and {n} presses. " for n in range(40)
    )
    assert score_significance("".join(days), 3.0, PLAIN).score >= 0.5
    assert score_significance("x " * 101, 3.0, PLAIN).score < 0.3
