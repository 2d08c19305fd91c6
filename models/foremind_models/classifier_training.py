"""Trains the classifiers of an embedding model on the corpus beside it.

The corpus was written for this project; every file is a category, every line something that a
player might say to a companion.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from foremind_models.cosines import Embed, Vectors
from foremind_models.manifest import Manifest, ModelUnusable
from foremind_models.registry import SHIPPED

CORPUS = Path(__file__).parent / "corpus"
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """What classifiers know of a text besides its vector.

    Attributes:
        names: of the features, in order; they say of which version classifiers are.
        of: returns the features of a text, float32 [len(names)].
    """

    names: tuple[str, ...]
    of: Callable[[str], Vectors]


class LinearClassifier(msgspec.Struct, frozen=True):
    """One logistic regression as stored: weights for the vector, then for the text features."""

    weights: list[float]
    bias: float


class ClassifierFile(msgspec.Struct, frozen=True):
    """The classifiers of one embedding model; `shape` names the text features in order."""

    model: str
    shape: list[str]
    keep: LinearClassifier
    recall: LinearClassifier


def are_of(file: ClassifierFile, manifest: Manifest, features: TextFeatures) -> bool:
    """Return whether classifiers are of this model, and of these text features."""
    size = manifest.dimension + len(features.names)
    return (
        file.model == manifest.name
        and file.shape == list(features.names)
        and {len(file.keep.weights), len(file.recall.weights)} == {size}
    )


def shipped_path(model: str) -> Path:
    """Return where the classifiers that ship for a model are, if there are any."""
    return SHIPPED / f"{model.replace('/', '--')}.classifiers.json"


def shipped_classifiers(manifest: Manifest, features: TextFeatures) -> ClassifierFile | None:
    """Return the classifiers that ship for a model; None if there are none.

    Raises:
        ModelUnusable: the file exists but does not match the model.
    """
    path = shipped_path(manifest.name)
    if not path.is_file():
        return None
    try:
        file = msgspec.json.decode(path.read_bytes(), type=ClassifierFile)
    except msgspec.DecodeError as error:
        raise ModelUnusable(f"{path}: {error}") from None
    if not are_of(file, manifest, features):
        raise ModelUnusable(
            f"{path}: expected {manifest.dimension + len(features.names)} weights for "
            f"{manifest.name}; retrain the classifiers"
        )
    return file


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


def train(
    corpus: list[CorpusLine], vectors: CorpusVectors, model: str, features: TextFeatures
) -> ClassifierFile:
    """Fit both classifiers on the lines that are not held out."""
    trained = np.array([not example.held_out for example in corpus])
    labels = [CATEGORIES[example.category] for example in corpus]

    def fit(
        embedded: Vectors, targets: list[bool], penalty: float, boundary: float
    ) -> LinearClassifier:
        inputs = _inputs(corpus, embedded, features)[trained]
        weights = _fit(inputs, np.array(targets, float)[trained], penalty)
        return LinearClassifier(
            weights=[round(float(weight), 4) for weight in weights[:-1]],
            bias=round(float(weights[-1]) - boundary, 4),
        )

    return ClassifierFile(
        model=model,
        shape=list(features.names),
        keep=fit(vectors.keep, [label.keep for label in labels], _KEEP_PENALTY, _KEEP_BOUNDARY),
        recall=fit(
            vectors.recall, [label.recall for label in labels], _RECALL_PENALTY, _RECALL_BOUNDARY
        ),
    )


def held_out_accuracy(
    corpus: list[CorpusLine],
    vectors: CorpusVectors,
    file: ClassifierFile,
    features: TextFeatures,
) -> dict[str, float]:
    """Return the accuracy of each classifier on the held-out lines."""
    held_out = np.array([example.held_out for example in corpus])
    accuracy = {}
    for name, classifier, embedded in (
        ("keep", file.keep, vectors.keep),
        ("recall", file.recall, vectors.recall),
    ):
        targets = np.array([getattr(CATEGORIES[example.category], name) for example in corpus])
        inputs = _inputs(corpus, embedded, features)
        predicted = inputs @ np.array(classifier.weights) + classifier.bias > 0
        accuracy[name] = float((predicted == targets)[held_out].mean())
    return accuracy


def _inputs(corpus: list[CorpusLine], vectors: Vectors, features: TextFeatures) -> Array:
    rows = [
        np.concatenate([vector, features.of(example.text)])
        for example, vector in zip(corpus, vectors, strict=True)
    ]
    return np.array(rows, np.float64)


def _fit(inputs: Array, labels: Array, penalty: float) -> Array:
    """Return the weights of an L2-regularised logistic regression, bias last (Newton's method)."""
    rows = np.hstack([inputs, np.ones((len(inputs), 1))])
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
