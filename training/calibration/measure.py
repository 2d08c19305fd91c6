"""What do thresholds published for other models mean for this one? Measured on labelled pairs.

Two thresholds are published for other embedding models: 0.72, at which an episode counts as the one
that is spoken of, and 0.65, at which a record is at least worth offering. What they are for is
measurable with any model:

- 0.72 is put where finding the same matter is most often right, precision counting double (F0.5);
- 0.65 where as many as possible are found for each that is wrong (F1).

    python -m training.calibration.measure [MODEL]

prints the lines for the model's manifest.
"""

import sys
import tomllib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foremind.domain.settings import load_settings
from foremind.retrieval.embedding.conversion import prepare_model
from foremind.retrieval.embedding.model_registry import find_model

_PAIRS = Path(__file__).with_name("pairs.toml")
_GRID = np.arange(0.10, 0.90, 0.01)
_MEANINGS = {"0.72": 0.5, "0.65": 1.0}


def main() -> None:
    """Print the calibration of a model."""
    settings = load_settings()
    name = sys.argv[1] if len(sys.argv) > 1 else settings.embedding_model
    manifest = find_model(name, settings.models_dir)
    encoder = prepare_model(manifest, settings.models_dir, print).encoder()

    def embed(texts: list[str], prefix: str) -> npt.NDArray[np.float32]:
        return np.concatenate([encoder.encode([prefix + text]) for text in texts])

    matters = tomllib.loads(_PAIRS.read_text("utf-8"))["matter"]
    records = embed([matter["record"] for matter in matters], manifest.passage_prefix)
    same = embed([matter["same"] for matter in matters], manifest.query_prefix)
    near = embed([matter["near"] for matter in matters], manifest.query_prefix)
    wanted = np.einsum("ij,ij->i", records, same)
    apart = ~np.eye(len(matters), dtype=bool)
    unwanted = np.concatenate(
        [(same @ records.T)[apart], (near @ records.T)[apart], np.einsum("ij,ij->i", records, near)]
    )
    # A relationship has about this many records of a layer: so many may be found by mistake.
    weight = 20 / (len(unwanted) / len(wanted))
    print("[calibration]")
    for published, beta in _MEANINGS.items():
        scores = [_f(wanted, unwanted, each, beta, weight) for each in _GRID]
        best = int(np.argmax(scores))
        least = float(_GRID[best])
        print(
            f'"{published}" = {least:.2f}  # finds {np.mean(wanted >= least):.0%} of the same, '
            f"{np.mean(unwanted >= least):.1%} of the others"
        )


def _f(
    wanted: npt.NDArray[np.float32],
    unwanted: npt.NDArray[np.float32],
    least: float,
    beta: float,
    weight: float,
) -> float:
    """Return the F score of finding what is at least `least` near."""
    right = float(np.sum(wanted >= least))
    wrong = float(np.sum(unwanted >= least)) * weight
    missed = len(wanted) - right
    square = beta * beta
    return (1 + square) * right / ((1 + square) * right + square * missed + wrong)


if __name__ == "__main__":
    main()
