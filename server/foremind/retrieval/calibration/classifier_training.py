"""Trains the classifiers of an embedding model on the corpus beside it.

The corpus was written for this project; every file is a category, every line something that a
player might say to a companion.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foremind.retrieval.calibration.cosines import Embed, Vectors
from foremind.retrieval.classifiers import (
    FEATURE_NAMES,
    ClassifierFile,
    LinearClassifier,
    features_of,
)

CORPUS = Path(__file__).parent / "corpus"
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Label:
    """A category's labels: whether to keep its lines, and whether to recall memories for them."""

    keep: bool
    recall: bool


_KEEP, _RECALL_ONLY, _NEITHER = Label(True, True), Label(False, True), Label(False, False)
CATEGORIES = {
    "life_event": _KEEP, "fact": _KEEP, "plan": _KEEP, "feeling": _KEEP,
    "preference": _KEEP, "constraint": _KEEP, "game_event": _KEEP,
    "world_event": _KEEP, "short_fact": _KEEP, "shared": _KEEP, "mixed": _KEEP,
    "third_person": _KEEP,
    "asks_memory": _RECALL_ONLY,
    "small_talk": _NEITHER, "filler": _NEITHER, "reaction": _NEITHER, "platitude": _NEITHER,
    "encouragement": _NEITHER, "question": _NEITHER, "game_chat": _NEITHER,
}  # fmt: skip

# L2 penalties per row, chosen on the held-out fifth.
_KEEP_PENALTY, _RECALL_PENALTY = 3e-3, 1e-3
# Log odds. A lost turn cannot be recalled, one too many only takes space, so the boundary for
# keeping lies below even odds. Measured on the LoCoMo development conversations: at -0.6, 97% of
# the turns that are asked about later are kept and a third of the others are not. The recall gate
# may be stricter: explicit questions pass regardless of the classifier.
_KEEP_BOUNDARY, _RECALL_BOUNDARY = -0.6, 0.1
_BIAS_PENALTY = 1e-9
_MAX_STEPS = 50  # of Newton's method; about ten are needed


@dataclass(frozen=True, slots=True)
class CorpusLine:
    """One line of the corpus."""

    text: str
    category: str

    @property
    def held_out(self) -> bool:
        """True for a fifth of the lines, chosen by hash and so independently of other lines."""
        return hashlib.sha256(self.text.encode()).digest()[0] % 5 == 0


def read_corpus() -> list[CorpusLine]:
    """Return every line of every category."""
    return [
        CorpusLine(line, category)
        for category in CATEGORIES
        for line in (CORPUS / f"{category}.txt").read_text("utf-8").splitlines()
        if line.strip()
    ]


@dataclass(frozen=True, slots=True)
class CorpusVectors:
    """The vectors that each classifier is used with: what is kept is a passage, a draft a query."""

    keep: Vectors
    recall: Vectors


def embed_corpus(
    corpus: list[CorpusLine], embed_query: Embed, embed_passage: Embed
) -> CorpusVectors:
    """Embed every line of a corpus as the classifiers will see it."""
    texts = [line.text for line in corpus]
    passages = embed_passage(texts)
    return CorpusVectors(
        keep=passages,
        recall=passages if embed_query is embed_passage else embed_query(texts),
    )


def train(corpus: list[CorpusLine], vectors: CorpusVectors, model: str) -> ClassifierFile:
    """Fit both classifiers on the lines that are not held out."""
    trained = np.array([not example.held_out for example in corpus])
    labels = [CATEGORIES[example.category] for example in corpus]

    def fit(
        embedded: Vectors, targets: list[bool], penalty: float, boundary: float
    ) -> LinearClassifier:
        features = _features(corpus, embedded)[trained]
        weights = _fit(features, np.array(targets, float)[trained], penalty)
        return LinearClassifier(
            weights=[round(float(weight), 4) for weight in weights[:-1]],
            bias=round(float(weights[-1]) - boundary, 4),
        )

    return ClassifierFile(
        model=model,
        shape=list(FEATURE_NAMES),
        keep=fit(vectors.keep, [label.keep for label in labels], _KEEP_PENALTY, _KEEP_BOUNDARY),
        recall=fit(
            vectors.recall, [label.recall for label in labels], _RECALL_PENALTY, _RECALL_BOUNDARY
        ),
    )


def held_out_accuracy(
    corpus: list[CorpusLine], vectors: CorpusVectors, file: ClassifierFile
) -> dict[str, float]:
    """Return the accuracy of each classifier on the held-out lines."""
    held_out = np.array([example.held_out for example in corpus])
    accuracy = {}
    for name, classifier, embedded in (
        ("keep", file.keep, vectors.keep),
        ("recall", file.recall, vectors.recall),
    ):
        targets = np.array([getattr(CATEGORIES[example.category], name) for example in corpus])
        features = _features(corpus, embedded)
        predicted = features @ np.array(classifier.weights) + classifier.bias > 0
        accuracy[name] = float((predicted == targets)[held_out].mean())
    return accuracy


def _features(corpus: list[CorpusLine], vectors: Vectors) -> Array:
    rows = [
        features_of(example.text, vector) for example, vector in zip(corpus, vectors, strict=True)
    ]
    return np.array(rows, np.float64)


def _fit(features: Array, labels: Array, penalty: float) -> Array:
    """Return the weights of an L2-regularised logistic regression, bias last (Newton's method)."""
    rows = np.hstack([features, np.ones((len(features), 1))])
    ridge = penalty * len(rows) * np.eye(rows.shape[1])
    # The bias is hardly penalised: just enough that each step has a solution.
    ridge[-1, -1] = _BIAS_PENALTY
    weights = np.zeros(rows.shape[1])
    for _ in range(_MAX_STEPS):
        probabilities = 1 / (1 + np.exp(-rows @ weights))
        gradient = rows.T @ (probabilities - labels) + ridge @ weights
        hessian = (rows * (probabilities * (1 - probabilities))[:, None]).T @ rows + ridge
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights
