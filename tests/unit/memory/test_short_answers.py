"""Short answers, and the questions that they answer."""

from collections.abc import Sequence

import pytest

from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.memory.short_answers import (
    answer_score,
    asks_about_listener,
    is_short_answer,
    question_to_keep,
)


def exchange(
    *texts: str, first: Speaker = "companion", kept: Sequence[int] = ()
) -> list[ExchangeTurn]:
    """Turns of alternating speakers, of which some have memories."""
    speakers: list[Speaker] = (
        ["companion", "user"] if first == "companion" else ["user", "companion"]
    )
    return [
        ExchangeTurn(
            position,
            speakers[position % 2],
            text,
            None,
            100 + position if position in kept else None,
        )
        for position, text in enumerate(texts)
    ]


def score_at(turns: list[ExchangeTurn], position: int, own: float = 0.1) -> float:
    """The score of a turn for what it answers, if each question by itself scores `own`."""
    return answer_score(turns, position, 0.3, 0.31, lambda _: own)


def asks_nothing(text: str) -> None:
    """Make sure that a text asks nothing about the listener, so that what follows is no answer."""
    assert not asks_about_listener(text, "companion")
    assert score_at(exchange(text, "Biscuit"), 1) == 0.0


@pytest.mark.parametrize(
    "question",
    [
        "What's your dog's name?",
        "Oh, you have a dog! What is he called, your dog?",
        "And where do you live now?",
        "Which instrument do you play?",
        "How old is your daughter?",
        "How many brothers do you have?",
        "When is your birthday?",
        "Do you have any pets?",
        "Did you bring anyone with you?",
        "Are you married?",
        "What should I call you?",
        "Which city are you from? 😊",
        "And what is he called?",
        "And your brother?",
    ],
)
@pytest.mark.parametrize("answer", ["Biscuit.", "Ana", "My uncle Pete", "42", "3 May!"])
def test_a_short_answer_about_oneself_is_kept_with_its_question(question: str, answer: str) -> None:
    """Whichever of the two is scored first: neither means anything without the other."""
    turns = exchange("Nice to meet you.", "Thank you.", question, answer)
    assert (score_at(turns, 3), score_at(turns, 2)) == (0.31, 0.31)
    assert question_to_keep(turns, 3) == 2
    assert (score_at(turns, 1), score_at(turns, 0)) == (0.0, 0.0)


def test_an_answer_to_a_kept_question_scores_as_much() -> None:
    """Whatever the question is about, and whoever asks; other questions pass nothing on."""
    turns = exchange("Is the promise about the harbour true?", "The lamp too", first="user")
    assert score_at(turns, 1, own=0.45) == 0.45
    assert score_at(turns, 1, own=0.29) == 0.0
    assert question_to_keep(turns, 1) is None


@pytest.mark.parametrize("said", ["My dog is called Rex", "I moved to Porto.", "im vegan"])
def test_what_states_a_fact_needs_no_question(said: str) -> None:
    """It answers, or is about something else; it is understood by itself either way."""
    turns = exchange("What's your dog's name?", said)
    assert (score_at(turns, 0), question_to_keep(turns, 1)) == (0.0, None)


def test_a_users_question_is_not_scored_again() -> None:
    """The client has been told the outcome; the answer is kept nevertheless."""
    turns = exchange("What's your dog's name?", "Biscuit.", first="user")
    assert (score_at(turns, 1), score_at(turns, 0)) == (0.31, 0.0)
    assert question_to_keep(turns, 1) is None


@pytest.mark.parametrize(
    "answer",
    ["haha", "Thanks!", "ok", "Sure, why not", "I don't know", "no idea", "uh-huh", "Hmm...",
     "Yes.", "Ross Geller: No.", "nooo", "What's yours?", "who is brad", "", "Good, thank you",
     "That is a long story, and I would rather tell it on another evening"],
)  # fmt: skip
def test_filler_answers_nothing(answer: str) -> None:
    """Even after a question that is kept."""
    turns = exchange("What's your dog's name?", answer)
    assert not is_short_answer(answer)
    assert (score_at(turns, 1, own=0.6), score_at(turns, 0, own=0.6)) == (0.0, 0.0)


@pytest.mark.parametrize(
    "text",
    ["How are you?", "What's up?", "What do you think?", "What are you doing?",
     "What's the next step?", "What would you like to do?", "How can I help you today?",
     "Are you sure?", "All right. Was it what you expected?", "Did it take you long?",
     "Where do you live? I live here."],
)  # fmt: skip
def test_not_every_question_is_about_the_listener(text: str) -> None:
    """Courtesies, questions about the moment, and texts that do not end with the question."""
    asks_nothing(text)


def test_users_ask_about_other_things_too() -> None:
    """Of a companion's answers only those about itself are kept."""
    assert score_at(exchange("Where is the exit?", "Behind the barn", first="user"), 1) == 0.0
    assert score_at(exchange("Where is your home?", "Behind the barn", first="user"), 1) == 0.31


def test_only_the_other_speaker_answers() -> None:
    """Two turns of one speaker are no question and answer."""
    turns = [
        ExchangeTurn(1, "user", "What's your dog's name?", None, None),
        ExchangeTurn(2, "user", "Biscuit.", None, None),
    ]
    assert score_at(turns, 1) == 0.0


@pytest.mark.parametrize(
    "text",
    ["Tell me, where were you born?", "What is your name", "what's your name", "whats your name",
     "May I ask your birthday?", "Could you tell me your address?", "Do you have children",
     "Could you please tell me where you live?", "Can I ask how old you are?", "How old are you",
     "Please tell me your name.", "Tell me your name", "Tell me where you live.",
     "Might I know your surname?", "May I have your phone number?", "Are you married",
     "Would you mind telling me your age?", "I'd love to know where you grew up.",
     "Remind me, what's your sister's name?", "By the way, do you have any pets?",
     "Ana, where do you work?", "If I may ask, are you married?", "Which city do you live in",
     "where are you from", "Where were you born \N{SLIGHTLY SMILING FACE}",
     "Just curious: what is your favourite colour?", "So what do you do for a living",
     "Can you remind me when your birthday is?", "Let me ask: who is your best friend?",
     "Out of curiosity, what instrument do you play?", "Can I get your name?",
     "Lovely to meet you! And your name?", "Hello there. What is your name", "Is your mother alive",
     "Could you tell me which school you went to?", "I wonder, how many siblings do you have?",
     "Did you ever live abroad", "Whose house did you grow up in", "May I ask what her name is?"],
)  # fmt: skip
def test_a_question_about_the_listener_can_be_phrased_in_many_ways(text: str) -> None:
    """With a polite phrase, after a comma, with an emoji or without a question mark at the end."""
    assert asks_about_listener(text, "companion")
    turns = exchange(text, "Biscuit")
    assert (score_at(turns, 1), score_at(turns, 0), question_to_keep(turns, 1)) == (0.31, 0.31, 0)


@pytest.mark.parametrize(
    "text",
    ["How are you?", "how are you", "Shall we go?", "Could you tell me the time?",
     "May I come in?", "May I ask you something?", "Can I ask you a question?", "Tell me more.",
     "Could you tell me what you think?", "Tell me a story", "Could you help me?",
     "Can I have your attention?", "Could you give me your hand?", "What do you think",
     "What you said is lovely", "When you are ready, we go", "How you have grown",
     "Do your best", "Have your ticket ready", "I know where you live", "Your name is lovely.",
     "Let me know when you are there", "You know what your brother is like", "Your name is lovely",
     "Thank you, how are you?", "Good morning, your highness.", "Tell me when you are ready.",
     "Come in, shall we sit?", "May I help you?", "Can you hear me?", "Could you wait here",
     "Tell me what you want.", "Would you mind if I sat down?", "Are you ready", "Are you sure",
     "What are you doing", "What would you like to do", "The lamp is yours, take it.",
     "When the rain is over you can go", "Where you go, I go", "I see.",
     "Can I have your help?", "May I know what happened next?", "What a day you had"],
)  # fmt: skip
def test_a_courtesy_alone_is_not_about_the_listener(text: str) -> None:
    """Neither is what only begins like a question."""
    asks_nothing(text)


def test_agreement_is_no_answer_in_any_language() -> None:
    """It names nothing."""
    assert not is_short_answer("Ja, genau")
    assert is_short_answer("Ja, mein Hund Bello")
