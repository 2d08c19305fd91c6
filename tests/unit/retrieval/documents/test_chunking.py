"""Chunking of documents at their natural boundaries."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.documents.chunking import MAX_CHUNK_TOKENS, split_into_chunks

_WORD = re.compile(r"\w+")
_LINES = st.sampled_from(
    ["", "# One", "### Two", "Three", "====", "---", "Four goes on", "and on.", "Five?", "Q: Six",
     "A: Seven.", "- eight", "1. nine", "Ten! Eleven. Twelve…", "x" * 700, "Ok. " * 200]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("One thing.\n\nAnother thing.", ["One thing.", "Another thing."]),
        ("# Ferry\n\n## Dogs\nThey sail free.", ["Ferry: Dogs\nThey sail free."]),
        ("Ferry\n=====\nIt leaves at ten.", ["Ferry\nIt leaves at ten."]),
        ("# Ferry\n# Fares\nOne euro.", ["Ferry", "Fares\nOne euro."]),
        ("Q: Dogs?\nA: Free.\nQ: Cats?\nA: No.", ["Q: Dogs?\nA: Free.", "Q: Cats?\nA: No."]),
        ("Dogs?\n\nFree.\n\nCats?\n\nNo.", ["Dogs?\nFree.", "Cats?\nNo."]),
        ("Are dogs free?\nYes.\nAnd cats?\nNo.", ["Are dogs free?\nYes.", "And cats?\nNo."]),
        (
            "犬は無料ですか？\nはい。\n猫は？\nいいえ。",
            ["犬は無料ですか？\nはい。", "猫は？\nいいえ。"],
        ),
        ("狗免费吗？\n是的。\n猫呢？\n不。", ["狗免费吗？\n是的。", "猫呢？\n不。"]),
        ("هل الكلاب مجانية؟\nنعم.\nوالقطط؟\nلا.", ["هل الكلاب مجانية؟\nنعم.", "والقطط؟\nلا."]),
        ("Opening hours\n\nFrom ten to noon.", ["Opening hours\nFrom ten to noon."]),
        ("A sentence that is\nbroken here.", ["A sentence that is broken here."]),
    ],
)
def test_a_document_is_split_at_its_boundaries(text: str, chunks: list[str]) -> None:
    """Paragraphs, headings, question-answer pairs; a short line is merged into what follows."""
    assert split_into_chunks(text) == chunks


def test_a_long_paragraph_is_split_between_sentences() -> None:
    """Each part begins with the last sentence of the one before."""
    text = " ".join(f"The ferry number {n} leaves at half past ten." for n in range(40))
    parts = split_into_chunks(text)
    assert len(parts) > 5
    for part, following in pairwise(parts):
        assert part.endswith("ten.")
        assert following.startswith(part.rpartition("ten. ")[2])


def test_a_list_is_split_between_its_items() -> None:
    """Without overlap, since items are less related than sentences."""
    items = [f"- dish {n} with potatoes, salad and something of the day" for n in range(20)]
    parts = split_into_chunks("# Menu\n" + "\n".join(items))
    assert [line for part in parts for line in part.splitlines()[1:]] == items
    assert len(parts) > 5


@given(st.lists(_LINES, max_size=60).map("\n".join) | st.text(max_size=5000))
def test_no_word_is_lost_and_no_chunk_is_too_long(text: str) -> None:
    """Every word is in a chunk, and an embedding model can read each chunk whole."""
    chunks = split_into_chunks(text)
    whole = "\n".join(chunks)
    for word in _WORD.findall(text):
        assert len(word) > 300 or word in whole
    for chunk in chunks:
        assert chunk.strip()
        assert estimate_tokens(chunk) <= 2 * MAX_CHUNK_TOKENS or not chunk.isascii()
