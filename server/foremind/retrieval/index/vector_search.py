"""The nearest of many vectors, most of them told apart by a byte a dimension. Pure.

The approximation file of Weber, Schek and Blott (VLDB 1998): short codes with a bound on their
error go first, and the vectors themselves are read only where the bound leaves it open, so that
the nearest that come out are exactly those of the whole vectors.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import simsimd

Vector = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_HEADER_BYTES = 4
_WORTH_CODES = 4096  # vectors; below, they are read as soon as their codes
_LARGEST = 127  # of a code
_LEAST = float(np.finfo(np.float32).tiny) * _LARGEST  # of a vector that is all zeros
_PORTION = 1024  # vectors coded at a time, so that they stay in the processor's cache
_ROUNDING = 1e-5  # what float32 may add to the error
_NONE: Vector = np.zeros(0, np.float32)


class Vectors:
    """Unit vectors, float32 [vectors, dimension]; where they are many, int8 codes beside them."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        """Read vectors as `halfvec_send` gives them."""
        self._vectors = _unpacked(packed)
        self._codes = _Codes(self._vectors) if len(packed) >= _WORTH_CODES else None

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def size_bytes(self) -> int:
        """What they take in memory."""
        return self._vectors.nbytes + (0 if self._codes is None else self._codes.size_bytes)

    def cosines(self, vector: Vector) -> tuple[Vector, float]:
        """Return about the cosine of each with a unit vector, and how far off it is at most."""
        if self._codes is not None:
            return self._codes.cosines(vector)
        return (self._vectors @ vector if len(self) else _NONE), 0.0

    def exact(self, rows: Rows, vector: Vector) -> Vector:
        """Return the cosines of some."""
        return self._vectors[rows] @ vector if len(rows) else _NONE


class _Codes:
    """int8 codes [vectors, dimension] with a float32 scale [vectors]."""

    def __init__(self, vectors: Vector) -> None:
        self._codes = np.empty(vectors.shape, np.int8)
        self._scales = np.empty(len(vectors), np.float32)
        self._error = 0.0  # the largest distance between a vector and what its code stands for
        for first in range(0, len(vectors), _PORTION):
            rows = slice(first, first + _PORTION)
            self._codes[rows], self._scales[rows], error = _coded(vectors[rows])
            self._error = max(self._error, error)

    @property
    def size_bytes(self) -> int:
        return self._codes.nbytes + self._scales.nbytes

    def cosines(self, vector: Vector) -> tuple[Vector, float]:
        asked, scales, error = _coded(vector[None])
        products = np.asarray(simsimd.cdist(asked, self._codes, "dot", out_dtype="float32"))[0]
        # |q.v - q'.v'| <= |q||v - v'| + |q - q'||v'|, and |v'| <= |v| + |v - v'|.
        off = self._error + error * (1 + self._error) + _ROUNDING
        return products * (self._scales * scales[0]), off


def _unpacked(vectors: Sequence[bytes]) -> Vector:
    if not vectors:
        return np.zeros((0, 0), np.float32)
    raw = np.frombuffer(b"".join(vectors), np.uint8).reshape(len(vectors), -1)
    return np.ascontiguousarray(raw[:, _HEADER_BYTES:]).view(">f2").astype(np.float32)


def _coded(vectors: Vector) -> tuple[npt.NDArray[np.int8], Vector, float]:
    """Return codes, scales and the largest distance of a vector from its code."""
    scales = np.maximum(np.abs(vectors).max(axis=1), _LEAST) / _LARGEST
    column = scales[:, None]
    rounded = np.rint(vectors / column)
    missed = vectors - rounded * column
    error = float(np.sqrt(np.einsum("ij,ij->i", missed, missed).max()))
    return rounded.astype(np.int8), scales, error
