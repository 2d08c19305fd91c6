"""Search of a companion's documents by vectors and by terms."""

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgvector import HalfVector

from foremind.domain.companion import Chunk
from foremind.retrieval.documents.library import DocumentIndex, InvertedIndex

SENTENCE = "The ferry number {} leaves at ten. "
WORDS = ["zander", "ferry", "menu", "bread", "wine", "ten"]
NOTHING = np.zeros(0, np.float32)
LIMIT = 20


def unit(rng: np.random.Generator, near: npt.NDArray[np.float32] | None = None) -> Chunk:
    """A chunk with a random vector, or one near another vector."""
    noise = rng.standard_normal(64).astype(np.float32)
    vector = noise if near is None else near + 0.05 * noise
    return Chunk(0, "", "text", HalfVector(vector / np.linalg.norm(vector)).to_binary())


def test_a_rare_term_finds_a_chunk_without_a_vector() -> None:
    """While the document is not embedded yet."""
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
def test_a_lexical_match_needs_half_of_the_terms_or_a_name(draft: str, found: bool) -> None:
    """A single shared term is not enough."""
    chunks = [Chunk(0, "Ferry", "The galley of Teodora serves soup and bread.", None)]
    assert bool(DocumentIndex(chunks, 0.3).search(draft, NOTHING)) == found


@pytest.mark.parametrize("count", [3, 200, 5000])
def test_the_nearest_chunks_are_exact_at_any_size(count: int) -> None:
    """Quantised codes give the same result as the vectors."""
    rng = np.random.default_rng(count)
    query = rng.standard_normal(64).astype(np.float32)
    query /= np.linalg.norm(query)
    chunks = [
        Chunk(n, "", "text", unit(rng, query if n % 7 == 0 else None).packed) for n in range(count)
    ]
    vectors = [HalfVector.from_binary(chunk.packed or b"").to_numpy() for chunk in chunks]
    cosines = np.stack(vectors).astype(np.float32) @ query
    expected = [int(n) for n in np.argsort(-cosines)[:3] if cosines[n] >= 0.5]
    assert [chunk.id for chunk in DocumentIndex(chunks, 0.5).search("", query)] == expected


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=12), max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=8),
)
def test_the_inverted_index_ranks_by_bm25(chunks: list[list[str]], query: list[str]) -> None:
    """The order is that of the formula, ties included."""
    best = InvertedIndex([Counter(terms) for terms in chunks]).best(set(query), LIMIT)
    assert best == _by_formula(chunks, sorted(set(query)))


def _by_formula(chunks: list[list[str]], query: list[str]) -> list[int]:
    mean_length = sum(map(len, chunks)) / max(1, len(chunks))
    scores: dict[int, float] = {}
    for term in query:
        rows = [row for row, terms in enumerate(chunks) if term in terms]
        idf = math.log(1 + (len(chunks) - len(rows) + 0.5) / (len(rows) + 0.5))
        for row in rows:
            frequency = chunks[row].count(term)
            norm = 1.5 * (1 - 0.75 + 0.75 * len(chunks[row]) / mean_length)
            scores[row] = scores.get(row, 0.0) + idf * (frequency * 2.5 / (frequency + norm))
    return sorted(scores, key=lambda row: (-scores[row], row))[:LIMIT]
