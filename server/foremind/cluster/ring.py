"""The gateways that clients can be told to go to, and who owns what among them. Pure.

Which gateway owns a relationship: rendezvous hashing, so that all compute the same.

The owner is the gateway with the highest hash of key and name (highest random weight, Thaler and
Ravishankar 1998). A gateway that joins takes over only what it owns from then on, and one that
leaves gives up only what it owned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

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


#: After a change, until every gateway that can reach the database has seen it: three polls.
SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway, and the URL of its WebSocket that clients are told."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Ring:
    """The gateways that are alive and not draining, as one of them sees it.

    Attributes:
        urls: their URLs, by name.
        since: the monotonic time of the last change.
    """

    urls: Mapping[str, str] = field(default_factory=dict)
    since: float = float("-inf")

    @property
    def has_several(self) -> bool:
        """Whether there is more than one gateway."""
        return len(self.urls) > 1

    def updated(self, gateways: Iterable[Gateway], now: float) -> Self:
        """Return the ring of these gateways, which is this one if nothing has changed."""
        urls = {gateway.name: gateway.url for gateway in gateways}
        return self if urls == self.urls else type(self)(urls, now)

    def settled(self, now: float) -> bool:
        """Return whether the other gateways can be expected to see the same ring."""
        return now - self.since >= SETTLE_S

    def owner(self, key: bytes) -> Gateway | None:
        """Return the gateway that owns a relationship, None if there are no gateways."""
        name = owner_of(key, self.urls)
        return None if name is None else Gateway(name, self.urls[name])
