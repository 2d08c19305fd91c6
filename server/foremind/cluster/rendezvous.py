"""Which gateway owns a relationship: rendezvous hashing, so that all compute the same. Pure.

The owner is the gateway with the highest hash of key and name (highest random weight, Thaler and
Ravishankar 1998). A gateway that joins takes over only what it owns from then on, and one that
leaves gives up only what it owned.
"""

from collections.abc import Iterable
from hashlib import blake2b

_HASH_BYTES = 8


def relationship_key(user_id: str, companion: str) -> bytes:
    """Return the key of a relationship, which needs no look-up.

    Args:
        user_id: the user's external id, which contains no NUL.
        companion: the companion's slug.
    """
    return f"{user_id}\0{companion}".encode()


def owner_of(key: bytes, names: Iterable[str]) -> str | None:
    """Return the gateway, by name, that owns a key; None if there are no gateways."""
    return max(names, key=lambda name: (_weight(key, name), name), default=None)


def _weight(key: bytes, name: str) -> bytes:
    return blake2b(key, key=blake2b(name.encode()).digest(), digest_size=_HASH_BYTES).digest()
