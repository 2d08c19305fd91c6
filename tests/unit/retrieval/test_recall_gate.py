"""The recall gate."""

import pytest

from foremind.retrieval.recall_gate import worth_searching


@pytest.mark.parametrize(
    "text",
    [
        "What's my sister's name?",
        "do you remember the storm",
        "Who is Jill?",
        "What does Evan do to relax?",
        "when did we meet",
    ],
)
def test_explicit_requests_pass(text: str) -> None:
    """Whatever the classifier says."""
    assert worth_searching(text, -5.0)


@pytest.mark.parametrize("greeting", ["", "Hey, ", "so ", "Oh! And "])
@pytest.mark.parametrize(
    "question",
    [
        "Who opens the door?",
        "Whom did they invite?",
        "whose coat is it",
        "What's on the table?",
        "When should the humping stop?",
        "where were everyone going",
        "Which boat sank?",
        "WHY does she want to see him?",
        "How many eggs are left?",
        "How are you getting to Porto?",
        "What are you doing on the balcony?",
        "Did the cat get kittens?",
        "was Ines at the harbour",
        "Have we met?",
        "whos opening the door",
        "wheres the key",
        "Do you know who opens the door?",
        "could anybody say where the key is",
        "can you tell me which boat sank",
    ],
)
def test_questions_pass(greeting: str, question: str) -> None:
    """Also after a greeting."""
    assert worth_searching(greeting + question, -5.0)


@pytest.mark.parametrize(
    "text",
    [
        "what?",
        "whats up",
        "hows it going",
        "do you know what?",
        "Do you know what I mean?",
        "Why not",
        "who knows...",
        "How are you?",
        "how's it going, mate?",
        "What's up!",
        "Hey, what have you been up to?",
        "How was your weekend?",
        "What a lovely photo!",
        "How exciting! Tell me all about it.",
        "What do you think?",
        "what about you?",
        "Do you get lonely out here?",
        "Is that normal?",
        "will do",
        "whatever",
    ],
)
def test_turns_of_phrase_do_not_pass(text: str) -> None:
    """They only look like questions."""
    assert not worth_searching(text, -5.0)


@pytest.mark.parametrize("text", ["The one we talked about", "as you suggested", "like last time"])
def test_references_to_earlier_conversation_pass(text: str) -> None:
    """They need memories."""
    assert worth_searching(text, -5.0)


def test_other_texts_pass_according_to_the_classifier() -> None:
    """Without a classifier, only an empty text is rejected."""
    assert not worth_searching("haha yeah", -1.0)
    assert worth_searching("haha yeah", None)
    assert worth_searching("The ferry was late", 0.1)
    assert not worth_searching("  ", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wie heißt mein Hund?", True),
        ("ich gehe mit dem Hund spazieren", True),
        ("我的狗叫什么名字", True),
        ("Danke schön!", False),
        ("そうですね", False),
    ],
)
@pytest.mark.parametrize("log_odds", [None, -5.0, 5.0])
def test_content_opens_the_gate_in_other_languages(
    text: str, expected: bool, log_odds: float | None
) -> None:
    """The classifier was trained on English."""
    assert worth_searching(text, log_odds) is expected


def test_the_players_language_decides_about_few_words() -> None:
    """The classifier was trained on English; fillers of any language open nothing."""
    assert worth_searching("Zoo Leipzig Samstag", -5.0, "de")
    assert not worth_searching("Zoo Leipzig Samstag", -5.0)
    assert not worth_searching("prima", -5.0, "de")
