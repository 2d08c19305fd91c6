"""Extractive summaries, used where no language model is configured."""

from datetime import UTC, datetime

import pytest

from foremind.background.extractive_summary import (
    Utterance,
    conclusions_of,
    left_open,
    questions_of,
    references_of,
    sentences_of,
    settles,
    top_sentences,
    topics_of,
    with_full_stop,
)
from foremind.background.summary import summary_by_rules
from foremind.text.tokenization import terms_key


def said(*texts: str, replies: tuple[str, ...] = ()) -> list[Utterance]:
    """Utterances of Ana, each with its reply, if any."""
    utterances = []
    for number, text in enumerate(texts):
        utterances.append(Utterance(2 * number, "Ana", True, text, 0.4))
        if number < len(replies):
            utterances.append(Utterance(2 * number + 1, "Wren", False, replies[number], 0.1))
    return utterances


def test_top_sentences_keep_the_order_of_speaking() -> None:
    """They are significant and central; questions and near-duplicates are left out."""
    utterances = said(
        "Nice weather today. My goal is to finish the lighthouse before the winter.",
        "How are you doing today, my friend?",
        "Nothing else to say. I promise to bring you the lamp of the lighthouse.",
        "My goal is to finish the lighthouse before the winter comes.",
    )
    assert [sentence.text for sentence in top_sentences(utterances, 2)] == [
        "My goal is to finish the lighthouse before the winter.",
        "I promise to bring you the lamp of the lighthouse.",
    ]


_LOOP = " ".join(["Dear Wren, I'm so glad you're having a wonderful day, dear."] * 5)
_DAY = datetime(2026, 11, 26, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (_LOOP, False),
        ("It's so lovely to hear about your dear Bolota.", False),
        ("Today is Thursday, 26 November 2026.", False),
        ("I keep the lighthouse at Skerry with my brother Edd.", True),
    ],
)
def test_what_a_companion_says_without_telling_anything_is_in_no_summary(
    reply: str, shown: bool
) -> None:
    """However often it says that: the player's words stand there."""
    told = ("i work at a bakery called Pao Quente", "i was born in funchal", "i had a dog, Bolota")
    utterances = [
        utterance
        for text in told
        for utterance in (
            Utterance(1, "Rita", True, text, 0.5, _DAY),
            Utterance(2, "Wren", False, reply, 0.6, _DAY),
        )
    ]
    lines = summary_by_rules([], utterances)
    assert [line for line in lines if line.startswith("Rita")] == [f"Rita: {text}" for text in told]
    assert any(line.startswith("Wren") for line in lines) is shown


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("My boss is Mr. Smith. He is strict.", ["My boss is Mr. Smith.", "He is strict."]),
        ("I met Dr. Lima in St. Ives. It rained.", ["I met Dr. Lima in St. Ives.", "It rained."]),
        ("I read J. K. Rowling. And you?", ["I read J. K. Rowling.", "And you?"]),
        ("Harry S. Truman was here. So?", ["Harry S. Truman was here.", "So?"]),
        ("We meet at 5 p.m. today. Ok", ["We meet at 5 p.m. today.", "Ok"]),
        ("We met at 5 p.m. It rained.", ["We met at 5 p.m.", "It rained."]),
        ("It is no. 5 here. Ring!", ["It is no. 5 here.", "Ring!"]),
        ("No. I hate it.", ["No.", "I hate it."]),
        ("So do I. Then we go.", ["So do I.", "Then we go."]),
        ("It cost 3.50 at shop.com. Cheap!", ["It cost 3.50 at shop.com.", "Cheap!"]),
        ("On 20 May 2026: I sailed. I slept.", ["I sailed.", "I slept."]),
        ("これは犬です。猫もいます。", ["これは犬です。", "猫もいます。"]),
    ],
)
def test_sentences_end_where_they_end(text: str, sentences: list[str]) -> None:
    """Not after titles, initials and within numbers."""
    assert sentences_of(text) == sentences


def test_names_places_and_works_are_references() -> None:
    """Normalised; names of speakers, days and months are left out."""
    texts = [
        "I met Beatriz in Porto on Friday; we read “The Sea Wolf”, dear Wren",
        "with Beatriz",
    ]
    assert references_of(texts, ("Ana", "Wren")) == ("beatriz", "porto", "the sea wolf")


def test_topics_are_repeated_nouns() -> None:
    """Filler words are none."""
    utterances = said(
        "I really love my garden, it makes me happy", "The garden was great today", "A garden!"
    )
    assert topics_of(utterances, 1) == ("garden",)
    asides = said("I thought about another mussel", "Just another thought", "A second thought")
    assert topics_of(asides, 3) == ("mussel",)
    short = said("I adopted a dog today", "My dog sleeps on the old bed", "Does he see the dog?")
    assert topics_of(short, 2) == ("dog",)
    verbs = said("The mussels hide in sand", "They killed the mussels, who hide", "They killed")
    assert topics_of(verbs, 3) == ("mussels",)


def test_questions_and_conclusions_are_distinguished() -> None:
    """Each is found by its own function only."""
    utterances = said(
        "Which paint holds best in salt water?", "We decided to take the blue enamel paint"
    )
    assert questions_of(utterances, 3) == ("Which paint holds best in salt water?",)
    assert conclusions_of(utterances, 3) == ("We decided to take the blue enamel paint",)


@pytest.mark.parametrize(
    ("text", "reply", "is_open"),
    [
        ("What became of the old compass?", "I'm not sure, to be honest.", True),
        ("What became of the old compass?", "It lies in the drawer.", False),
        ("Let's talk about the compass later, I must go", "All right.", True),
        ("I still can't decide about the offer", "Take your time.", True),
        ("I bought a compass for the boat", "How nice.", False),
    ],
)
def test_unanswered_and_postponed_questions_are_open(text: str, reply: str, is_open: bool) -> None:
    """Everything else is not."""
    assert bool(left_open(said(text, replies=(reply,)), 3)) == is_open


def test_a_question_is_settled_by_an_answer_about_its_subject() -> None:
    """Not by any other discovery."""
    question = "What became of Zarco's broken compass?"
    assert settles("I found out what became of the broken compass of Zarco", question)
    assert not settles("I found out who took my bread", question)
    assert not settles("The broken compass of Zarco is on my mind", question)


def test_topic_keys_ignore_number_and_articles() -> None:
    """Different words have different keys."""
    assert terms_key("The Gardens") == terms_key("garden") != terms_key("gate")


@pytest.mark.parametrize(
    "question", ["Where is the ferry?", "渡船在哪里？", "渡し船はどこですか？", "أين العبارة؟"]
)
def test_any_question_mark_ends_a_question(question: str) -> None:
    """In the middle of a text, too; what follows is another sentence."""
    assert sentences_of(f"{question} Yes.") == [question, "Yes."]
    assert with_full_stop(question) == question
    assert top_sentences([Utterance(1, "Ana", True, question, 0.9)], 3) == []
