"""Which replies tell anything new."""

import pytest

from foremind.memory.short_answers import is_informative
from foremind_eval.reply_labels import read_replies

_ALLOWED_WRONG = 2  # of the labelled ones


def test_labelled_replies_are_told_apart() -> None:
    """Facts, promises and tastes of a companion, from sympathy, repetition and questions."""
    labelled = read_replies()
    wrong = [
        reply.reply
        for reply in labelled
        if is_informative(reply.reply, [reply.message]) != reply.informative
    ]
    assert len(labelled) > 40 and len(wrong) <= _ALLOWED_WRONG, wrong


@pytest.mark.parametrize(
    ("reply", "known", "informative"),
    [
        ("Mhm, I see.", "", False),
        ("x" * 101, "", False),
        ("I keep the lighthouse at Skerry.", "", True),
        ("I keep the lighthouse at Skerry.", "Do you keep the lighthouse at Skerry?", False),
        ("You live in Porto, and your cat is Mo.", "I live in Porto with my cat Mo", False),
        ("Do you keep bees in Braga?", "", False),
        ("私は灯台を守って兄と暮らしています", "", True),
        ("そうですね。", "", False),
        ("", "", False),
    ],
)
def test_what_is_known_is_no_news(reply: str, known: str, informative: bool) -> None:
    assert is_informative(reply, [known]) is informative
