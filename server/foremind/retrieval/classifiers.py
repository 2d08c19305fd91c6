"""Two linear heads on a text's vector and shape: is it worth keeping, does it ask for memories?

`training/significance` makes them from a corpus of its own; they are logistic regressions, whose
weights lie beside the model's manifest, since they mean nothing to another model.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.errors import InvalidFile
from foremind.retrieval.embedding.manifest import Manifest
from foremind.runtime.assets import asset
from foremind.text.features import NAMES, shape_of

Vector = npt.NDArray[np.float32]


class LinearClassifier(msgspec.Struct, frozen=True):
    """One logistic regression as it is kept in a file: weights for the vector, then the shape."""

    weights: list[float]
    bias: float


class ClassifierFile(msgspec.Struct, frozen=True):
    """The heads of one embedding model; `shape` names the numbers that follow the vector's."""

    model: str
    shape: list[str]
    keep: LinearClassifier
    recall: LinearClassifier


class TextClassifiers:
    """What the heads say of a text and its vector, float32 [dimension]."""

    def __init__(self, file: ClassifierFile) -> None:
        self._weights = np.array([file.keep.weights, file.recall.weights], np.float32)
        self._biases = np.array([file.keep.bias, file.recall.bias], np.float32)

    def read(self, text: str, vector: Vector) -> "Classification":
        """Return both heads' log odds."""
        keep, recall = self._weights @ features_of(text, vector) + self._biases
        return Classification(keep=float(keep), recall=float(recall))


@dataclass(frozen=True, slots=True)
class Classification:
    """Log odds, above 0 for yes: worth keeping; an answer gains from memories."""

    keep: float
    recall: float


def features_of(text: str, vector: Vector) -> Vector:
    """Return what the heads look at, float32 [dimension + 9]."""
    return np.concatenate([vector, shape_of(text)])


def load_heads(manifest: Manifest) -> TextClassifiers | None:
    """Read the heads that are shipped for a model, or None where there are none.

    Raises:
        InvalidFile: the file is there, but not for this model.
    """
    path = heads_path(manifest.name)
    if not path.is_file():
        return None
    try:
        file = msgspec.json.decode(path.read_bytes(), type=ClassifierFile)
    except msgspec.DecodeError as error:
        raise InvalidFile(f"{path}: {error}") from None
    size = manifest.dimension + len(NAMES)
    if (
        file.model != manifest.name
        or file.shape != list(NAMES)
        or {len(file.keep.weights), len(file.recall.weights)} != {size}
    ):
        raise InvalidFile(f"{path}: expected {size} weights for {manifest.name}; train them anew")
    return TextClassifiers(file)


def heads_path(model: str) -> Path:
    """Return where the heads of a model are kept."""
    return asset("models") / f"{model.replace('/', '--')}.heads.json"
