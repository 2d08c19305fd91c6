"""Calibrate published similarity thresholds for an embedding model, on labelled pairs.

Two thresholds are published for other embedding models: 0.72, at which an episode is the one being
talked about, and 0.65, at which a record is worth offering at all. For any model they become:

- 0.72: the threshold with the best F0.5 score (precision counts double) for finding the same
  subject;
- 0.65: the threshold with the best F1 score.

    python -m training.calibration.measure_cosines [MODEL]

prints the lines for the model's manifest.
"""

import sys
import tomllib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foremind.domain.settings.settings import load_settings
from foremind.retrieval.embedding.conversion import prepare_model
from foremind.retrieval.embedding.model_registry import find_model

_PAIRS = Path(__file__).with_name("pairs.toml")
_GRID = np.arange(0.10, 0.90, 0.01)
_BETA = {"0.72": 0.5, "0.65": 1.0}


def main() -> None:
    """Print the calibration of a model."""
    settings = load_settings()
    name = sys.argv[1] if len(sys.argv) > 1 else settings.embedding_model
    manifest = find_model(name, settings.models_dir)
    encoder = prepare_model(manifest, settings.models_dir, print).encoder()

    def embed(texts: list[str], prefix: str) -> npt.NDArray[np.float32]:
        return np.concatenate([encoder.encode([prefix + text]) for text in texts])

    pairs = tomllib.loads(_PAIRS.read_text("utf-8"))["matter"]
    records = embed([pair["record"] for pair in pairs], manifest.passage_prefix)
    same = embed([pair["same"] for pair in pairs], manifest.query_prefix)
    near = embed([pair["near"] for pair in pairs], manifest.query_prefix)
    positives = np.einsum("ij,ij->i", records, same)
    off_diagonal = ~np.eye(len(pairs), dtype=bool)
    negatives = np.concatenate(
        [
            (same @ records.T)[off_diagonal],
            (near @ records.T)[off_diagonal],
            np.einsum("ij,ij->i", records, near),
        ]
    )
    # A relationship has about 20 records of a layer: weight negatives as 20 for each positive.
    weight = 20 / (len(negatives) / len(positives))
    print("[calibration]")
    for published, beta in _BETA.items():
        scores = [_f_score(positives, negatives, threshold, beta, weight) for threshold in _GRID]
        threshold = float(_GRID[int(np.argmax(scores))])
        print(
            f'"{published}" = {threshold:.2f}  # finds '
            f"{np.mean(positives >= threshold):.0%} of the same, "
            f"{np.mean(negatives >= threshold):.1%} of the others"
        )


def _f_score(
    positives: npt.NDArray[np.float32],
    negatives: npt.NDArray[np.float32],
    threshold: float,
    beta: float,
    weight: float,
) -> float:
    """Return the F-beta score of a similarity threshold, with false positives weighted."""
    true_positives = float(np.sum(positives >= threshold))
    false_positives = float(np.sum(negatives >= threshold)) * weight
    false_negatives = len(positives) - true_positives
    square = beta * beta
    weighted = (1 + square) * true_positives
    return weighted / (weighted + square * false_negatives + false_positives)


if __name__ == "__main__":
    main()
