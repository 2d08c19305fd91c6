"""Exact nearest-neighbour search over many vectors, most of them excluded by int8 codes. Pure.

The VA-file of Weber, Schek and Blott (VLDB 1998): quantised codes with a bound on their error are
scanned first, and only the vectors that the bound cannot exclude are rescored, so that the result
is exactly that of a full scan.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import simsimd

Vector = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_HEADER_BYTES = 4
_MIN_QUANTISED_VECTORS = 4096  # vectors; fewer are scanned as fast as their codes
_MAX_CODE = 127
_MIN_MAGNITUDE = float(np.finfo(np.float32).tiny) * _MAX_CODE  # of an all-zero vector
_BATCH_VECTORS = 1024  # quantised at a time, so that they stay in the processor's cache
_ROUNDING_ERROR = 1e-5  # what float32 arithmetic may add to the error
_NO_COSINES: Vector = np.zeros(0, np.float32)


class Vectors:
    """Unit vectors, float32 [vectors, dimension]; with quantised codes where there are many."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        """Decode vectors from the output of `halfvec_send`."""
        self._vectors = _unpacked(packed)
        self._codes = (
            _QuantisedCodes(self._vectors) if len(packed) >= _MIN_QUANTISED_VECTORS else None
        )

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def size_bytes(self) -> int:
        """Memory use of vectors and codes."""
        return self._vectors.nbytes + (0 if self._codes is None else self._codes.size_bytes)

    def cosines(self, vector: Vector) -> tuple[Vector, float]:
        """Return approximate cosines of all with a unit vector, and their maximum error."""
        if self._codes is not None:
            return self._codes.cosines(vector)
        return (self._vectors @ vector if len(self) else _NO_COSINES), 0.0

    def exact(self, rows: Rows, vector: Vector) -> Vector:
        """Return the exact cosines of some rows."""
        return self._vectors[rows] @ vector if len(rows) else _NO_COSINES


class _QuantisedCodes:
    """int8 codes [vectors, dimension] with a float32 scale [vectors]."""

    def __init__(self, vectors: Vector) -> None:
        self._codes = np.empty(vectors.shape, np.int8)
        self._scales = np.empty(len(vectors), np.float32)
        self._max_error = 0.0  # the largest distance between a vector and its decoded code
        for first in range(0, len(vectors), _BATCH_VECTORS):
            rows = slice(first, first + _BATCH_VECTORS)
            self._codes[rows], self._scales[rows], error = _quantised(vectors[rows])
            self._max_error = max(self._max_error, error)

    @property
    def size_bytes(self) -> int:
        return self._codes.nbytes + self._scales.nbytes

    def cosines(self, vector: Vector) -> tuple[Vector, float]:
        codes, scales, error = _quantised(vector[None])
        products = np.asarray(simsimd.cdist(codes, self._codes, "dot", out_dtype="float32"))[0]
        # |q.v - q'.v'| <= |q||v - v'| + |q - q'||v'|, and |v'| <= |v| + |v - v'|.
        max_error = self._max_error + error * (1 + self._max_error) + _ROUNDING_ERROR
        return products * (self._scales * scales[0]), max_error


def _unpacked(vectors: Sequence[bytes]) -> Vector:
    if not vectors:
        return np.zeros((0, 0), np.float32)
    raw = np.frombuffer(b"".join(vectors), np.uint8).reshape(len(vectors), -1)
    return np.ascontiguousarray(raw[:, _HEADER_BYTES:]).view(">f2").astype(np.float32)


def _quantised(vectors: Vector) -> tuple[npt.NDArray[np.int8], Vector, float]:
    """Return codes, scales and the largest distance of a vector from its decoded code."""
    scales = np.maximum(np.abs(vectors).max(axis=1), _MIN_MAGNITUDE) / _MAX_CODE
    column = scales[:, None]
    rounded = np.rint(vectors / column)
    residuals = vectors - rounded * column
    error = float(np.sqrt(np.einsum("ij,ij->i", residuals, residuals).max()))
    return rounded.astype(np.int8), scales, error
