"""A memory's terms as bytes: an eight-byte hash and a frequency each. Pure."""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

# With a million terms the probability of any collision is one in thirty million.
WORD = np.dtype([("hash", "<u8"), ("frequency", "<f4")])


@lru_cache(maxsize=50_000)
def hash_of(term: str) -> int:
    """Return the 64-bit hash of a term."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")


def clear_hash_cache() -> None:
    """Clear the cache of term hashes."""
    hash_of.cache_clear()


def pack_terms(terms: Mapping[str, float]) -> bytes:
    """Return terms and their frequencies as bytes, twelve per term."""
    packed = np.empty(len(terms), WORD)
    packed["hash"] = [hash_of(term) for term in terms]
    packed["frequency"] = list(terms.values())
    return packed.tobytes()


def unpack_terms(packed: bytes) -> npt.NDArray[np.void]:
    """Return packed terms as a structured array of hash and frequency."""
    return np.frombuffer(packed, WORD)
