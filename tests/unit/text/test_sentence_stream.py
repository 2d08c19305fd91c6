"""A text that arrives in pieces is split into sentences, each once it is known to be whole."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.text.sentences import SentenceStream


def split(pieces: list[str]) -> list[str]:
    """The sentences of a streamed text."""
    stream = SentenceStream()
    return [*(sentence for piece in pieces for sentence in stream.feed(piece)), *stream.end()]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello there. ", "How are you? ", "Fine!"],
        ["Mr. Smith met J. K. Rowling at 5 p.m. today. ", "They paid 3.14 euros, e.g. for pies."],
        ["It opens at 5 p.m. ", "Come early."],
        ["Hmm... okay then. ", "Well… let's see. ", "Well… ", "Let's see."],
        ['"Stop!" he said. ', '"Go." ', "She went."],
        ["Is that so?! ", "Yes!!! ", "No."],
        ["*smiles* Hi there. ", "*waves.* ", "Bye."],
        ["1. First\n", "2. Second\n", "Done"],
        ["One line\n", "and another"],
        ["... What?"],
        ["Am 3. Oktober fahren wir los. ", "Danach schlafen wir."],
        ["Viene el Sr. García. ", "¿Cuándo? ", "¡Mañana!"],
        ["C’est l’été ! ", "Vraiment ? ", "Oui…"],
        ["Она здесь. ", "Правда? ", "Да!"],
        ["Gelir misin? ", "Evet, gelirim."],
        ["Chodź tu! ", "Już idę."],
        ["Kom je? ", "Ja, om 8 uur."],
        ["你好。", "今天怎么样？", "很好！"],
        ["「行こう。」", "と彼は言った。", "そうだね。"],
        ["안녕하세요. ", "잘 지내요? ", "네!"],
        ["क्या हाल है? ", "मैं ठीक हूँ। ", "तुम बताओ।"],
        ["هل أنت بخير؟ ", "نعم."],
    ],
)
def test_a_text_is_split_where_its_sentences_end(sentences: list[str]) -> None:
    """In every language, however the text is cut."""
    text = "".join(sentences)
    assert split([text]) == sentences
    assert split(list(text)) == sentences


def test_a_sentence_is_whole_when_the_next_one_begins() -> None:
    """Not before: it may go on."""
    stream = SentenceStream()
    assert stream.feed("Hello there.") == []
    assert stream.feed(" ") == []
    assert stream.feed("How") == ["Hello there. "]
    assert stream.feed(" are you\n") == ["How are you\n"]


def test_a_long_sentence_is_split_between_clauses_or_words() -> None:
    """As where a language has no full stops, such as Thai."""
    clause = "and the boat went on along the coast, "
    text = f"The boat {clause * 12}at last."
    parts = split(list(text))
    assert "".join(parts) == text and len(parts) > 1
    assert all(len(part) <= 300 and part.endswith((", ", "last.")) for part in parts)
    thai = "ฉันชอบแมวมาก เธอชอบหมามากกว่า แต่เราก็ยังเป็นเพื่อนกัน และไปเที่ยวด้วยกันทุกวันเสาร์ ที่ตลาดใหญ่"
    parts = split(list(thai))
    assert "".join(parts) == thai and len(parts) > 1
    assert all(part.endswith(" ") for part in parts[:-1])


@given(st.text(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_nothing_is_lost(text: str, cuts: list[int]) -> None:
    """The sentences are the text, but for white space at its end."""
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    joined = "".join(split(pieces))
    assert text.startswith(joined) and not text[len(joined) :].strip()
