"""Documents become text, text becomes chunks."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfWriter

from foremind.errors import InvalidMessage, RequestError
from foremind.layers.reading import CHUNK_TOKENS, chunks_of, pieces_of, text_of
from foremind.layers.shelf import Shelf, passage_of
from foremind.layers.tokens import estimate_tokens
from foremind.storage.documents import Chunk

MENU = "Bread. " * 300 + "The zander is fried. " + "Wine. " * 300
SENTENCE = "The ferry number {} leaves at ten. "
WORDS = ["zander", "ferry", "menu", "bread", "wine", "ten"]


def test_html_is_read_without_its_scripts() -> None:
    """Only what a reader would see."""
    page = b"<html><head><style>p{}</style></head><p>Pier nine.</p><script>x()</script></html>"
    assert text_of(page, "text/html; charset=utf-8") == "Pier nine."


@pytest.mark.parametrize(
    ("body", "media_type", "param"),
    [
        (b"x", "image/png", "content-type"),
        (b"\xff\xfe", "text/plain", "body"),
        (b"not a pdf", "application/pdf", "body"),
        (b"  ", "text/plain", "body"),
    ],
)
def test_what_cannot_be_read_names_what_was_expected(
    body: bytes, media_type: str, param: str
) -> None:
    """The type, or the text in it."""
    with pytest.raises(RequestError) as caught:
        text_of(body, media_type)
    assert caught.value.param == param


def test_a_pdf_without_text_is_said_to_have_none() -> None:
    """A scan is no text."""
    out = io.BytesIO()
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(out)
    with pytest.raises(InvalidMessage, match="with text"):
        text_of(out.getvalue(), "application/pdf")


def test_chunks_share_half_with_the_one_before() -> None:
    """800 tokens, 400 of them again."""
    text = "".join(SENTENCE.format(number) for number in range(400))
    chunks = chunks_of(text)
    assert all(estimate_tokens(each) <= CHUNK_TOKENS + 1 for each in chunks)
    shared = set(chunks[0].split(". ")) & set(chunks[1].split(". "))
    assert 0.4 < len(shared) / len(chunks[0].split(". ")) < 0.6


@given(st.text(max_size=5000))
def test_no_word_of_a_document_is_lost(text: str) -> None:
    """Every one is in a chunk, and in a piece of one."""
    chunks = chunks_of(text)
    for word in text.split():
        if len(word) < 50:
            assert any(word in each for each in chunks)
    for chunk in chunks:
        assert "".join("".join(pieces_of(chunk)).split()) == "".join(chunk.split())


def test_meaning_and_words_are_fused() -> None:
    """A chunk that shares a rare word comes up without any vector; its best passage is quoted."""
    chunks = [Chunk(n, "Timetable", SENTENCE.format(n), None) for n in range(20)]
    chunks.append(Chunk(20, "Menu", MENU, None))
    (first, *_) = Shelf(chunks, 0.3).search("Do they have zander?", np.zeros(0, np.float32))
    assert first.id == 20
    assert "zander" in passage_of(first, "Do they have zander?")
    assert len(passage_of(first, "Do they have zander?")) < len(first.content) / 3


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=8),
)
def test_words_rank_chunks_as_the_formula_says(said: list[list[str]], asked: list[str]) -> None:
    """What is fast gives the same order as BM25 written down, ties included."""
    chunks = [Chunk(n, "", " ".join(words), None) for n, words in enumerate(said)]
    shelf = Shelf(chunks, 0.3)
    assert shelf.best_worded(" ".join(asked)) == _by_formula(said, sorted(set(asked)))


def _by_formula(said: list[list[str]], asked: list[str]) -> list[int]:
    mean = sum(map(len, said)) / max(1, len(said))
    scores: dict[int, float] = {}
    for word in asked:
        having = [row for row, words in enumerate(said) if word in words]
        rarity = np.log(1 + (len(said) - len(having) + 0.5) / (len(having) + 0.5))
        for row in having:
            frequency = said[row].count(word)
            norm = 1.5 * (1 - 0.75 + 0.75 * len(said[row]) / mean)
            scores[row] = scores.get(row, 0.0) + rarity * frequency * 2.5 / (frequency + norm)
    return sorted(scores, key=lambda row: (-scores[row], row))[:20]
