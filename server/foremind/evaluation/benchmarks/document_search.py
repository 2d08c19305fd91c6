"""The reference library: passages with vectors of their own, and what they cost beside chunks."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.document import Chunk
from foremind.domain.settings import Settings
from foremind.evaluation.benchmarks.figures import ROUNDS, Figure, Say, figure, in_turn, number
from foremind.evaluation.seeding import words_said
from foremind.retrieval.documents.document_index import DocumentIndex

Vector = npt.NDArray[np.float32]

_SIZES = (1_000, 20_000)  # passages of one companion
_IN_A_CHUNK = 8  # passages that a chunk of 800 tokens held, each in two chunks
_WORDS, _ASKED = 45, 8
_DIMENSION = 384
_LEAST = 0.3
_MIB = 1 << 20


async def bench_library(settings: Settings, say: Say) -> list[Figure]:
    """A search of passages against one of the same text in chunks with one vector each."""
    figures = []
    for size in _SIZES:
        say(f"Shelving {size:,} passages ...")
        rng = np.random.default_rng(size)
        texts = [" ".join(words_said(rng, _WORDS)) for _ in range(size)]
        passages = DocumentIndex(_chunks(rng, texts), _LEAST)
        joined = [
            " ".join(texts[first : first + _IN_A_CHUNK])
            for first in range(0, size, _IN_A_CHUNK // 2)
        ]
        chunks = DocumentIndex(_chunks(rng, joined), _LEAST)
        asked = [(" ".join(words_said(rng, _ASKED)), _unit(rng)) for _ in range(2 * ROUNDS)]
        drafts = iter(asked)
        ours, theirs = await in_turn(
            [partial(_search, each, drafts) for each in (passages, chunks)]
        )
        name = f"{size:,} passages"
        figures += [
            figure(f"library of {name}, a search", "the same text in chunks", ours, theirs),
            number(
                f"library of {name}, held", "MiB", passages.size_bytes / _MIB,
                "the same text in chunks", chunks.size_bytes / _MIB,
            ),
        ]  # fmt: skip
    return figures


async def _search(shelf: DocumentIndex, drafts: Iterator[tuple[str, Vector]]) -> object:
    text, vector = next(drafts)
    return shelf.search(text, vector)


def _chunks(rng: np.random.Generator, texts: Sequence[str]) -> list[Chunk]:
    return [
        Chunk(number, "Rules", text, HalfVector(_unit(rng)).to_binary())
        for number, text in enumerate(texts)
    ]


def _unit(rng: np.random.Generator) -> Vector:
    vector = rng.standard_normal(_DIMENSION).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)
