"""The recall gate."""

import pytest

from foremind.retrieval.recall_gate import is_pure_question, worth_searching


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


@pytest.mark.parametrize("greeting", ["", "Hey, ", "so "])
@pytest.mark.parametrize(
    "text",
    [
        "Where do I live?",
        "what was the name of my dog again",
        "whats my dogs name",
        "where does Tomas live",
        "what did Rita bake for the wedding",
        "Can you tell me where my dog sleeps?",
        "remind me what my boss is called",
        "I wonder what my dog is called",
        "Did I tell you where I live?",
        "Did I tell you my name?",
        "Do you know my sister?",
    ],
)
def test_pure_questions_are_recognised(greeting: str, text: str) -> None:
    """In any form, with or without a question mark."""
    assert is_pure_question(greeting + text)


@pytest.mark.parametrize("greeting", ["", "Hey, ", "so "])
@pytest.mark.parametrize(
    "text",
    [
        "Did you know that I moved to Porto?",
        "did you know my sister is a nurse",
        "Did I tell you I got a new job at the harbour?",
        "Have I ever mentioned that my brother plays the cello?",
        "Can you believe the storm took our roof?",
        "When I was the captain we won every game",
        "What it did for me was more than I hoped",
        "Remind me when the cake is done",
        "I wonder if I should leave my job",
        "My dog sleeps in the kitchen. Where does yours sleep?",
        "What a day, I lost the ring of my mother",
    ],
)
def test_a_statement_is_not_a_pure_question(greeting: str, text: str) -> None:
    """Even if it begins or ends like one."""
    assert not is_pure_question(greeting + text)
