"""Questions, with or without a question mark."""

import pytest

from foremind.text.languages.utterances import is_pure_question


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
        "Tell me the name of my violin.",
        "could you tell me about my sister",
        "Say my violin's name again please!",
        "I forgot the name of my violin, what was it?",
        "i dont remember where the key is",
        "I've forgotten my sister's name",
        "Can't you remember my violin",
        "cant you remember my violin",
        "Don’t you know my name",
        "didnt we meet in Porto",
        "Haven't I told you where I live",
        "Isn't my dog called Scout",
        "doesn't my sister live in Ghent",
        "Why can't I find my violin",
        "Am I not your friend",
        "should I call my sister",
        "You remember my violin, right",
        "you know my name don't you",
        "any idea where my keys are",
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
        "Can you remind me to call Ines",
        "Couldn't you just call me Sam",
        "Don't you dare call me honey",
        "Don't forget my violin",
        "Can't sleep because of my dog",
        "Didn't you know that I moved to Porto",
        "Haven't I told you that my sister is a nurse",
        "Isn't it lovely, I got a dog today",
        "Don't we all love olives",
        "You know I live in Porto",
        "Wasn't there for the wedding of my sister",
        "I wonder if I should leave my job",
        "My dog sleeps in the kitchen. Where does yours sleep?",
        "What a day, I lost the ring of my mother",
        "Tell me the truth",
        "Tell me the plan, I am the captain",
        "Tell my sister that I moved",
        "Remind me to call Ines on Friday",
        "Say the word and I will come",
        "I forgot my keys in Porto",
        "I don't remember my father",
        "I forgot the name of my violin: it is Esmeralda",
    ],
)
def test_a_statement_is_not_a_pure_question(greeting: str, text: str) -> None:
    """Even if it begins or ends like one."""
    assert not is_pure_question(greeting + text)
