"""Short answers, and the questions that they answer."""

from collections.abc import Sequence

import pytest

from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.memory.short_answers import (
    answer_score,
    asks_about_other,
    is_short_answer,
    question_to_keep,
)


def exchange(
    *said: str, first: Speaker = "companion", kept: Sequence[int] = ()
) -> list[ExchangeTurn]:
    """Turns of both in turn, of which some have memories."""
    speakers: list[Speaker] = (
        ["companion", "user"] if first == "companion" else ["user", "companion"]
    )
    return [
        ExchangeTurn(n, speakers[n % 2], text, None, 100 + n if n in kept else None)
        for n, text in enumerate(said)
    ]


def scored(said: list[ExchangeTurn], here: int, own: float = 0.1) -> float:
    """What a turn is worth for what it answers, where each question by itself is worth `own`."""
    return answer_score(said, here, 0.3, 0.31, lambda _: own)


def asks_nothing(text: str) -> None:
    """Nothing about the other, so that what follows is no answer."""
    assert not asks_about_other(text, "companion")
    assert scored(exchange(text, "Biscuit"), 1) == 0.0


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
    """Whichever of the two is judged first: neither means anything without the other."""
    said = exchange("Nice to meet you.", "Thank you.", question, answer)
    assert (scored(said, 3), scored(said, 2)) == (0.31, 0.31)
    assert question_to_keep(said, 3) == 2
    assert (scored(said, 1), scored(said, 0)) == (0.0, 0.0)


def test_an_answer_to_a_question_that_is_kept_is_worth_as_much() -> None:
    """Whatever it asks for, and whoever asks; what is not kept gives nothing on."""
    said = exchange("Is the promise about the harbour true?", "The lamp too", first="user")
    assert scored(said, 1, own=0.45) == 0.45
    assert scored(said, 1, own=0.29) == 0.0
    assert question_to_keep(said, 1) is None


def test_a_players_question_is_not_judged_again() -> None:
    """The client was told what became of it; the answer is kept all the same."""
    said = exchange("What's your dog's name?", "Biscuit.", first="user")
    assert (scored(said, 1), scored(said, 0)) == (0.31, 0.0)
    assert question_to_keep(said, 1) is None


@pytest.mark.parametrize(
    "answer",
    ["haha", "Thanks!", "ok", "Sure, why not", "I don't know", "no idea", "uh-huh", "Hmm...",
     "Yes.", "Ross Geller: No.", "nooo", "What's yours?", "who is brad", "", "Good, thank you",
     "That is a long story, and I would rather tell it on another evening"],
)  # fmt: skip
def test_filler_answers_nothing(answer: str) -> None:
    """Also after a question, and after one that is kept."""
    said = exchange("What's your dog's name?", answer)
    assert not is_short_answer(answer)
    assert (scored(said, 1, own=0.6), scored(said, 0, own=0.6)) == (0.0, 0.0)


@pytest.mark.parametrize(
    "text",
    ["How are you?", "What's up?", "What do you think?", "What are you doing?",
     "What's the next step?", "What would you like to do?", "How can I help you today?",
     "Are you sure?",
     "Where do you live? I live here."],
)  # fmt: skip
def test_not_every_question_asks_for_something_about_oneself(text: str) -> None:
    """Courtesies, the next moment, the place, and what is no question at the end."""
    asks_nothing(text)


def test_a_player_asks_for_other_things_too() -> None:
    """Of a companion's answers only those about itself are kept."""
    assert scored(exchange("Where is the exit?", "Behind the barn", first="user"), 1) == 0.0
    assert scored(exchange("Where is your home?", "Behind the barn", first="user"), 1) == 0.31


def test_only_the_other_answers() -> None:
    """Two turns of one speaker are no question and answer."""
    said = [
        ExchangeTurn(1, "user", "What's your dog's name?", None, None),
        ExchangeTurn(2, "user", "Biscuit.", None, None),
    ]
    assert scored(said, 1) == 0.0


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
def test_a_question_about_oneself_may_be_put_in_many_ways(text: str) -> None:
    """With a courtesy, behind a comma, with a smile or no mark at its end."""
    assert asks_about_other(text, "companion")
    said = exchange(text, "Biscuit")
    assert (scored(said, 1), scored(said, 0), question_to_keep(said, 1)) == (0.31, 0.31, 0)


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
def test_a_courtesy_alone_asks_for_nothing_about_oneself(text: str) -> None:
    """Neither does what only begins like a question."""
    asks_nothing(text)
