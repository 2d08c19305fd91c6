"""Marks of emotions are no part of a reply, and each of its sentences has its emotion."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.llm.speech import EmotionMarks, SpokenSentences, without_marks

EMOTIONS = ("calm", "happy", "angry", "happy tears", "开心")
_PIECES = st.sampled_from(
    [
        "(happy)", "[Happy]", "*happy*", "<happy>", "</happy>", "Happy:", "**Happy:**", "(happy",
        "happy", "Happy tears", "[happy tears]", "【开心】", "(sad)", "*smiles*", "*", "(", "[",
        ":", " ", "\n", "  \n\n", ".", "!", "...", '"', "Hello", " there", "I am", "。", "你好",
        "1.", "-",
    ]
)  # fmt: skip


def split(text: str, cuts: list[int]) -> list[str]:
    """Split a text at some places."""
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(places)]


def spoken(pieces: list[str]) -> tuple[str, list[tuple[str, str | None]]]:
    """The text of a streamed reply, and its sentences with their emotions."""
    marks = EmotionMarks(EMOTIONS)
    sentences, text = SpokenSentences(marks), ""
    found = []
    for piece in [*pieces, None]:
        passed = marks.end() if piece is None else marks.feed(piece)
        text += passed
        found += sentences.feed(passed)
    found += sentences.end(text)
    assert [sentence.index for sentence in found] == list(range(len(found)))
    return text, [(sentence.text, sentence.emotion) for sentence in found]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("[happy] You are back!", "You are back!"),
        ("(happy) You are back!", "You are back!"),
        ("*happy* You are back!", "You are back!"),
        ("_happy_ You are back!", "You are back!"),
        ("<happy> You are back!", "You are back!"),
        ("<happy>You are back!</happy>", "You are back!"),
        ("{happy} You are back!", "You are back!"),
        ("Happy: You are back!", "You are back!"),
        ("HAPPY: You are back!", "You are back!"),
        ("**Happy:** You are back!", "You are back!"),
        ("**Happy**: You are back!", "You are back!"),
        ("*(happy)* You are back!", "You are back!"),
        ("[happy]: You are back!", "You are back!"),
        ("[happy tears] You are back!", "You are back!"),
        ("[calm]\n[happy]\nYou are back!", "You are back!"),
        ('"(happy) You are back!"', '"You are back!"'),
        ("*smiles* (happy) You are back!", "*smiles* You are back!"),
        ("*She smiles.* [happy] You are back!", "*She smiles.* You are back!"),
        ("- [happy] You are back!", "- You are back!"),
        ("【开心】你回来了！（开心）真好。", "你回来了！真好。"),
        ("开心：你回来了！", "你回来了！"),
        ("Oh. (happy) You are back!", "Oh. You are back!"),
        ("Oh!(happy) You are back!", "Oh! You are back!"),
        ("Oh.\n\n[happy]\nYou are back!", "Oh.\n\nYou are back!"),
        ("Oh. [happy]\n\nYou are back!", "Oh.\n\nYou are back!"),
        ("You are back! [happy]", "You are back!"),
    ],
)
def test_a_mark_at_the_start_of_a_sentence_is_removed(reply: str, expected: str) -> None:
    """However the reply is split: not at all, or into single characters."""
    assert without_marks(reply, EMOTIONS) == expected
    assert spoken(list(reply))[0] == expected


@pytest.mark.parametrize(
    "reply",
    [
        "I am (happy) for you, and *happy* it is over.",
        "(sad) You are gone.",
        "(happily) You are back.",
        "(happy birthday) You are back.",
        "Happy birthday!",
        "Happy.",
        "happy:) yes",
        "Oh.Happy: you are back",
        "1. Happy: when it is sunny.\n2. Angry: when it is not.",
        "- Happy: when it is sunny.",
        "[happy) You are back.",
        "(happy You are back.",
        "[[[[[happy]]]]] You are back.",
        "*Happy as can be*, she smiles.",
        "(happy)",
        "[happy] [angry]",
        "(hap",
        "Happy",
        "...",
        " \n\n",
        "",
    ],
)
def test_all_else_stays_text(reply: str) -> None:
    """What is not in the set, a word in the middle of a sentence, a reply that is nothing else."""
    kept = reply if reply != "[happy] [angry]" else "[happy][angry]"
    assert without_marks(reply, EMOTIONS) == kept
    assert spoken(list(reply))[0] == kept


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Hello.", [("Hello.", None)]),
        (
            "[happy] You are back! Sit down. [calm] The kettle is on.",
            [("You are back!", "happy"), ("Sit down.", "happy"), ("The kettle is on.", "calm")],
        ),
        ("Well. [angry] No! No.", [("Well.", None), ("No!", "angry"), ("No.", "angry")]),
        ("<happy>Hi!</happy> Bye.", [("Hi!", "happy"), ("Bye.", "happy")]),
        ('*waves* (happy) "Hi there!"', [('*waves* "Hi there!"', "happy")]),
        ("HAPPY TEARS: Oh my.", [("Oh my.", "happy tears")]),
        ("[calm] [angry] No.", [("No.", "angry")]),
        ("Yes. [happy]", [("Yes.", None)]),
    ],
)
def test_a_sentence_has_the_emotion_that_it_is_marked_with(
    reply: str, expected: list[tuple[str, str | None]]
) -> None:
    """By the name in the set; one that is not marked has that of the last before it."""
    assert spoken([reply])[1] == expected
    assert spoken(list(reply))[1] == expected


@given(st.lists(_PIECES, max_size=12), st.lists(st.integers(0, 200), max_size=8))
def test_the_pieces_of_a_reply_make_no_difference(pieces: list[str], cuts: list[int]) -> None:
    reply = "".join(pieces)
    assert spoken(split(reply, cuts)) == spoken([reply])


@given(st.lists(_PIECES, max_size=12))
def test_no_word_is_lost_but_those_of_marks(pieces: list[str]) -> None:
    """And none is added: what is left is the reply without some of its characters."""
    reply = "".join(pieces)
    rest = iter(reply)
    assert all(char in rest for char in without_marks(reply, EMOTIONS))
    for word in ("Hello", "there", "I am", "sad", "smiles", "你好", "!", "..."):
        assert without_marks(reply, EMOTIONS).count(word) == reply.count(word)


@given(st.text(max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_a_reply_without_names_is_unchanged(reply: str, cuts: list[int]) -> None:
    """At no time is more than a few characters held back."""
    marks, passed, fed = EmotionMarks(["zzz", "qqq"]), "", ""
    if "zzz" in reply.lower() or "qqq" in reply.lower():
        return
    for piece in split(reply, cuts):
        fed += piece
        passed += marks.feed(piece)
        assert len(fed) - len(passed) <= 64 + 8
    assert passed + marks.end() == reply


def test_a_reply_that_begins_anew_is_spoken_anew() -> None:
    """Its sentences are numbered on."""
    sentences = SpokenSentences(None)
    assert [s.text for s in sentences.feed("I should think. Then I ")] == ["I should think."]
    sentences.restart(None)
    numbered = [*sentences.feed("Hello. You "), *sentences.end("Hello. You there")]
    assert [(s.index, s.text) for s in numbered] == [(1, "Hello."), (2, "You there")]


def test_of_a_reply_that_was_shortened_no_more_is_spoken() -> None:
    """What had been said in a loop is no longer part of it."""
    sentences = SpokenSentences(None)
    assert len(sentences.feed("Again. Again. Again. Ag")) == 3
    assert sentences.end("Again.") == []
