"""The passages of a companion's documents, by meaning and by words."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgvector import HalfVector

from foremind.domain.document import Chunk
from foremind.retrieval.documents.document_index import DocumentIndex, QueryTerms

SENTENCE = "The ferry number {} leaves at ten. "
WORDS = ["zander", "ferry", "menu", "bread", "wine", "ten"]
NOTHING = np.zeros(0, np.float32)
MOST = 20


def unit(rng: np.random.Generator, near: npt.NDArray[np.float32] | None = None) -> Chunk:
    """A passage with a vector of its own, or one near another."""
    drawn = rng.standard_normal(64).astype(np.float32)
    vector = drawn if near is None else near + 0.05 * drawn
    return Chunk(0, "", "text", HalfVector(vector / np.linalg.norm(vector)).to_binary())


def test_what_shares_a_rare_word_comes_up_without_any_vector() -> None:
    """As long as the document is not embedded."""
    chunks = [Chunk(n, "Timetable", SENTENCE.format(n), None) for n in range(20)]
    chunks.append(Chunk(20, "Menu", "The zander is fried.", None))
    (first, *_) = DocumentIndex(chunks, 0.3).search("Do they have zander?", NOTHING)
    assert first.id == 20


@pytest.mark.parametrize(
    ("draft", "found"),
    [
        ("Is there bread?", True),
        ("I like cheese with bread and a film in the evening", False),
        ("Yesterday I talked for hours with old Teodora of my work", True),
    ],
)
def test_one_common_word_brings_nothing_back(draft: str, found: bool) -> None:
    """Half of what is asked for does, or a name."""
    chunks = [Chunk(0, "Ferry", "The galley of Teodora serves soup and bread.", None)]
    assert bool(DocumentIndex(chunks, 0.3).search(draft, NOTHING)) == found


@pytest.mark.parametrize("count", [3, 200, 5000])
def test_the_nearest_come_first_however_many_there_are(count: int) -> None:
    """Those told apart by a byte a dimension are the same as those of the whole vectors."""
    rng = np.random.default_rng(count)
    asked = rng.standard_normal(64).astype(np.float32)
    asked /= np.linalg.norm(asked)
    chunks = [
        Chunk(n, "", "text", unit(rng, asked if n % 7 == 0 else None).packed) for n in range(count)
    ]
    whole = [HalfVector.from_binary(chunk.packed or b"").to_numpy() for chunk in chunks]
    cosines = np.stack(whole).astype(np.float32) @ asked
    expected = [int(n) for n in np.argsort(-cosines)[:3] if cosines[n] >= 0.5]
    assert [each.id for each in DocumentIndex(chunks, 0.5).search("", asked)] == expected


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=8),
)
def test_words_rank_chunks_as_the_formula_says(said: list[list[str]], asked: list[str]) -> None:
    """What is fast gives the same order as BM25 written down, ties included."""
    best = QueryTerms([Counter(each) for each in said]).best(set(asked), MOST)
    assert best == _by_formula(said, sorted(set(asked)))


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
    return sorted(scores, key=lambda row: (-scores[row], row))[:MOST]
