"""Document search: passages with a vector each, against the same text in larger chunks."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.companion import Chunk
from foremind.domain.settings.settings import Settings
from foremind.retrieval.documents.library import DocumentIndex
from foremind_eval.benchmarks.figures import (
    ROUNDS,
    Figure,
    Say,
    measure_interleaved,
    single_figure,
    timing_figure,
)
from foremind_eval.seeding import sample_words

Vector = npt.NDArray[np.float32]

_SIZES = (1_000, 20_000)  # passages of one companion
_PASSAGES_PER_CHUNK = 8  # as in a chunk of 800 tokens; consecutive chunks overlap by half
_WORDS_PER_PASSAGE, _WORDS_PER_QUERY = 45, 8
_DIMENSION = 384
_MIN_SIMILARITY = 0.3
_MIB = 1 << 20


async def bench_library(settings: Settings, say: Say) -> list[Figure]:
    """Compare search time and memory of passages and of the same text in larger chunks."""
    figures = []
    for size in _SIZES:
        say(f"Indexing {size:,} passages ...")
        rng = np.random.default_rng(size)
        texts = [" ".join(sample_words(rng, _WORDS_PER_PASSAGE)) for _ in range(size)]
        passages = DocumentIndex(_chunks(rng, texts), _MIN_SIMILARITY)
        joined = [
            " ".join(texts[first : first + _PASSAGES_PER_CHUNK])
            for first in range(0, size, _PASSAGES_PER_CHUNK // 2)
        ]
        chunks = DocumentIndex(_chunks(rng, joined), _MIN_SIMILARITY)
        queries = iter(
            [
                (" ".join(sample_words(rng, _WORDS_PER_QUERY)), _unit_vector(rng))
                for _ in range(2 * ROUNDS)
            ]
        )
        passages_ms, chunks_ms = await measure_interleaved(
            [partial(_search, index, queries) for index in (passages, chunks)]
        )
        name = f"{size:,} passages"
        figures += [
            timing_figure(
                f"library of {name}, a search", "the same text in chunks", passages_ms, chunks_ms
            ),
            single_figure(
                f"library of {name}, held", "MiB", passages.size_bytes / _MIB,
                "the same text in chunks", chunks.size_bytes / _MIB,
            ),
        ]  # fmt: skip
    return figures


async def _search(index: DocumentIndex, queries: Iterator[tuple[str, Vector]]) -> object:
    text, vector = next(queries)
    return index.search(text, vector)


def _chunks(rng: np.random.Generator, texts: Sequence[str]) -> list[Chunk]:
    return [
        Chunk(number, "Rules", text, HalfVector(_unit_vector(rng)).to_binary())
        for number, text in enumerate(texts)
    ]


def _unit_vector(rng: np.random.Generator) -> Vector:
    vector = rng.standard_normal(_DIMENSION).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)
