"""A reply that is cut off ends with a sentence; one that goes round ends where that began."""

import pytest

from foremind.llm.reply_ending import SentenceBuffer, loop_period, without_loop


def passed(pieces: list[str], max_tokens: int, *, cut_off: bool) -> str:
    """Return all that is passed on of a reply."""
    buffer = SentenceBuffer(max_tokens)
    return "".join([*map(buffer.feed, pieces), buffer.end(cut_off=cut_off)]).rstrip()


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("The sea is calm. The boats are", "The sea is calm."),
        ("The sea is calm.", "The sea is calm."),
        ("“Go!” she said. “And then", "“Go!” she said."),
        ("*She smiles.* She walks to", "*She smiles.*"),
        ("I met Dr. Hale. He was", "I met Dr. Hale."),
        ("It is warm. I met Dr.", "It is warm."),
        ("It is warm. It costs 3.", "It is warm."),
        ("It is warm. I know J.", "It is warm."),
        ("海は静かだ。船は", "海は静かだ。"),
        ("هل تعرف البحر؟ أنا", "هل تعرف البحر؟"),
        ("Here is what I need:\n- apples\n- pea", "Here is what I need:\n- apples"),
        ("Is it? Yes! No… well", "Is it? Yes! No…"),
        ("The keeper of the north shore went", "The keeper of the north shore…"),
        ("Well,", "Well…"),
    ],
)
@pytest.mark.parametrize("by", ["characters", "words", "one"])
def test_a_reply_that_its_limit_ends_ends_with_a_sentence(text: str, ending: str, by: str) -> None:
    """Or, if none was whole, with a word; however it arrives."""
    words = text.replace(" ", " \0").split("\0")
    pieces = {"characters": list(text), "words": words, "one": [text]}[by]
    assert passed(pieces, len(text) // 4, cut_off=True) == ending
    assert passed(pieces, len(text) // 4, cut_off=False) == text


def test_far_from_its_limit_every_piece_is_passed_on_at_once() -> None:
    """Players see words, not sentences."""
    buffer = SentenceBuffer(400)
    assert [buffer.feed(piece) for piece in ("The ", "sea ", "is")] == ["The ", "sea ", "is"]


@pytest.mark.parametrize(
    "passage",
    [
        "I'm sorry. ",
        "no ",
        "I am here for you, always. Tell me more of it. ",
        "あのね、",
        "la-" * 60,
    ],
)
def test_a_loop_is_found_and_said_once(passage: str) -> None:
    """Whatever came before."""
    text = "The sea is calm today. " + passage * (700 // len(passage) + 1)
    period = loop_period(text)
    assert period > 0
    kept = without_loop(text, period)
    assert kept.startswith("The sea is calm today.")
    assert len(kept) <= len("The sea is calm today. ") + 2 * len(passage)
    assert not loop_period(kept)


@pytest.mark.parametrize(
    "text",
    [
        "Row, row, row your boat, gently down the stream. " * 2,
        "Ha ha ha ha ha! " * 5,
        "".join(f"{number}. Take the road to the left, and then another. " for number in range(40)),
        "",
    ],
)
def test_what_is_said_twice_is_no_loop(text: str) -> None:
    """Songs have refrains."""
    assert loop_period(text) == 0
