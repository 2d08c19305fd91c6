"""Measures what an embedding model's cosines mean, on labelled pairs.

Two thresholds are published for other embedding models: 0.72, at which an episode is the one being
talked about, and 0.65, at which a record is worth offering at all. For any model they become:

- 0.72: the threshold with the best F0.5 score (precision counts double) for finding the same
  subject;
- 0.65: the threshold with the best F1 score.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
#: Embeds texts as unit vectors, float32 [texts, dimension].
Embed = Callable[[Sequence[str]], Vectors]

_PAIRS = Path(__file__).with_name("pairs.toml")
_STEP = 0.005
_BETA = {"0.65": 1.0, "0.72": 0.5}
# The mean cosine of texts that have nothing in common, with the default model.
_UNRELATED = 0.05


@dataclass(frozen=True, slots=True)
class MeasuredThresholds:
    """By published cosine: this model's, and the shares of the pairs about the same matter and of
    the others that reach it.
    """

    cosines: dict[str, float]
    found: dict[str, float]
    mistaken: dict[str, float]


@dataclass(frozen=True, slots=True)
class MeasuredCosines:
    """What a model's cosines mean: those of a query and a passage, and those of two passages."""

    of_query: MeasuredThresholds
    of_passages: MeasuredThresholds
    repetition: float
    floor: float


def measure_cosines(embed_query: Embed, embed_passage: Embed) -> MeasuredCosines:
    """Measure a model's cosines on the pairs that ship with the server."""
    labelled = tomllib.loads(_PAIRS.read_text("utf-8"))
    matters, statements = labelled["matter"], labelled["statement"]
    records, same, near = ([pair[part] for pair in matters] for part in ("record", "same", "near"))
    stored, asked = embed_passage(records), embed_query(same)
    return MeasuredCosines(
        of_query=_thresholds(stored, asked, embed_query(near)),
        of_passages=_thresholds(stored, embed_passage(same), embed_passage(near)),
        repetition=_repetition(embed_passage, statements),
        floor=_floor(float(_unrelated(stored, asked).mean())),
    )


def _thresholds(records: Vectors, same: Vectors, near: Vectors) -> MeasuredThresholds:
    """Measure with what says the same as each record, and with what only resembles it."""
    positives = np.einsum("ij,ij->i", records, same)
    negatives = np.concatenate(
        [_unrelated(records, same), _unrelated(records, near), np.einsum("ij,ij->i", records, near)]
    )
    # A relationship has about 20 records of a layer: weight negatives as 20 for each positive.
    weight = 20 / (len(negatives) / len(positives))
    grid = np.arange(-1.0, 1.0, _STEP)
    cosines = {}
    for published, beta in _BETA.items():
        scores = [_f_score(positives, negatives, threshold, beta, weight) for threshold in grid]
        cosines[published] = round(float(grid[int(np.argmax(scores))]), 3)
    return MeasuredThresholds(
        cosines=cosines,
        found={key: float(np.mean(positives >= value)) for key, value in cosines.items()},
        mistaken={key: float(np.mean(negatives >= value)) for key, value in cosines.items()},
    )


def _unrelated(records: Vectors, others: Vectors) -> Vectors:
    """Return the cosines of each record with what belongs to another."""
    cosines: Vectors = (others @ records.T)[~np.eye(len(records), dtype=bool)]
    return cosines


def _repetition(embed: Embed, statements: list[dict[str, str]]) -> float:
    """Return the cosine half way between the most similar of the different statements and the
    median of those said again; never one that different statements reach, since a memory that is
    merged into another loses its words.
    """
    said, again, other = (
        embed([statement[part] for statement in statements]) for part in ("said", "again", "other")
    )
    different = np.concatenate(
        [
            (said @ said.T)[~np.eye(len(statements), dtype=bool)],
            np.einsum("ij,ij->i", said, other),
            np.einsum("ij,ij->i", again, other),
        ]
    )
    highest = float(different.max())
    repeated = float(np.median(np.einsum("ij,ij->i", said, again)))
    return round(max(highest + _STEP, (highest + repeated) / 2), 3)


def _floor(unrelated: float) -> float:
    """Return the cosine that counts as 0, so that unrelated texts score as with the default."""
    return round(max(0.0, (unrelated - _UNRELATED) / (1 - _UNRELATED)), 3)


def _f_score(
    positives: Vectors, negatives: Vectors, threshold: float, beta: float, weight: float
) -> float:
    """Return the F-beta score of a similarity threshold, with false positives weighted."""
    true_positives = float(np.sum(positives >= threshold))
    false_positives = float(np.sum(negatives >= threshold)) * weight
    false_negatives = len(positives) - true_positives
    square = beta * beta
    weighted = (1 + square) * true_positives
    return weighted / (weighted + square * false_negatives + false_positives)
