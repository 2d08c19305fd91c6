"""Trains the heads of an embedding model on the corpus beside this file.

    .venv/bin/python -m training.significance.train [MODEL]

Writes `models/MODEL.heads.json` and prints how the heads do on the fifth of the corpus that was
held out. The corpus was written for this project; every file is a category, every line something
that a player might say to a companion.
"""

import argparse
import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.settings import load_settings
from foremind.retrieval.classifiers import ClassifierFile, LinearClassifier, features_of, heads_path
from foremind.retrieval.embedding.conversion import prepare_model
from foremind.retrieval.embedding.model_registry import find_model
from foremind.text.features import NAMES

CORPUS = Path(__file__).parent / "corpus"
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Label:
    """What the lines of a category are: worth keeping; better answered with memories."""

    keep: bool
    recall: bool


_MATTERS, _ASKS, _PASSES = Label(True, True), Label(False, True), Label(False, False)
CATEGORIES = {
    "life_event": _MATTERS, "fact": _MATTERS, "plan": _MATTERS, "feeling": _MATTERS,
    "preference": _MATTERS, "constraint": _MATTERS, "game_event": _MATTERS,
    "world_event": _MATTERS, "short_fact": _MATTERS, "shared": _MATTERS, "mixed": _MATTERS,
    "third_person": _MATTERS,
    "asks_memory": _ASKS,
    "small_talk": _PASSES, "filler": _PASSES, "reaction": _PASSES, "platitude": _PASSES,
    "encouragement": _PASSES, "question": _PASSES, "game_chat": _PASSES,
}  # fmt: skip

# How strongly large weights are held back (L2, a row); chosen on the held-out fifth.
_KEEP_PENALTY, _RECALL_PENALTY = 3e-3, 1e-3
# A turn that is lost cannot be asked about; one too many only takes room. So its boundary lies
# below even odds. Measured on the LoCoMo development conversations: at -0.6, 97% of the turns that
# are asked about later are kept and a third of the others are not. The gate may be stricter: who
# asks in so many words is let through whatever the head says.
_KEEP_BOUNDARY, _RECALL_BOUNDARY = -0.6, 0.1


@dataclass(frozen=True, slots=True)
class Utterance:
    """One line of the corpus."""

    text: str
    category: str

    @property
    def held_out(self) -> bool:
        """True for a fifth of the lines, chosen by their hash: it never changes with the rest."""
        return hashlib.sha256(self.text.encode()).digest()[0] % 5 == 0


def read_corpus() -> list[Utterance]:
    """Return every line of every category."""
    return [
        Utterance(line, category)
        for category in CATEGORIES
        for line in (CORPUS / f"{category}.txt").read_text("utf-8").splitlines()
        if line.strip()
    ]


def train(corpus: list[Utterance], vectors: npt.NDArray[np.float32], model: str) -> ClassifierFile:
    """Fit both heads on the lines that are not held out."""
    features = _features(corpus, vectors)
    trained = np.array([not example.held_out for example in corpus])
    labels = [CATEGORIES[example.category] for example in corpus]

    def fit_one(wanted: list[bool], penalty: float, boundary: float) -> LinearClassifier:
        weights = _fit(features[trained], np.array(wanted, float)[trained], penalty)
        return LinearClassifier(
            weights=[round(float(weight), 4) for weight in weights[:-1]],
            bias=round(float(weights[-1]) - boundary, 4),
        )

    return ClassifierFile(
        model=model,
        shape=list(NAMES),
        keep=fit_one([label.keep for label in labels], _KEEP_PENALTY, _KEEP_BOUNDARY),
        recall=fit_one([label.recall for label in labels], _RECALL_PENALTY, _RECALL_BOUNDARY),
    )


def held_out_accuracy(
    corpus: list[Utterance], vectors: npt.NDArray[np.float32], file: ClassifierFile
) -> dict[str, float]:
    """Return the share of held-out lines that each head puts on the right side."""
    features = _features(corpus, vectors)
    held_out = np.array([example.held_out for example in corpus])
    shares = {}
    for name, head in (("keep", file.keep), ("recall", file.recall)):
        wanted = np.array([getattr(CATEGORIES[example.category], name) for example in corpus])
        said = features @ np.array(head.weights) + head.bias > 0
        shares[name] = float((said == wanted)[held_out].mean())
    return shares


def _features(corpus: list[Utterance], vectors: npt.NDArray[np.float32]) -> Array:
    rows = [
        features_of(example.text, vector) for example, vector in zip(corpus, vectors, strict=True)
    ]
    return np.array(rows, np.float64)


def _fit(features: Array, labels: Array, penalty: float) -> Array:
    """Return the weights of an L2-regularised logistic regression, bias last (Newton)."""
    rows = np.hstack([features, np.ones((len(features), 1))])
    ridge = penalty * len(rows) * np.eye(rows.shape[1])
    ridge[-1, -1] = 0.0  # the bias is free
    weights = np.zeros(rows.shape[1])
    while True:
        odds = 1 / (1 + np.exp(-rows @ weights))
        gradient = rows.T @ (odds - labels) + ridge @ weights
        hessian = (rows * (odds * (1 - odds))[:, None]).T @ rows + ridge
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            return weights


def main() -> None:
    """Train and write the heads of one model."""
    settings = load_settings()
    parser = argparse.ArgumentParser(description="Train the heads of an embedding model.")
    parser.add_argument("model", nargs="?", default=settings.embedding_model)
    manifest = find_model(parser.parse_args().model, settings.models_dir)
    encoder = prepare_model(manifest, settings.models_dir, print).encoder()
    corpus = read_corpus()
    vectors = encoder.encode([manifest.passage_prefix + example.text for example in corpus])
    file = train(corpus, vectors, manifest.name)
    heads_path(manifest.name).write_bytes(msgspec.json.encode(file) + b"\n")
    shares = held_out_accuracy(corpus, vectors, file)
    print(f"{len(corpus)} lines, {sum(example.held_out for example in corpus)} of them held out")
    print(", ".join(f"{name}: {share:.1%} right" for name, share in shares.items()))


if __name__ == "__main__":
    main()
