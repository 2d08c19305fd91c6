"""The gateways that clients can be told to go to, and who owns what among them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from foremind.cluster.rendezvous import owner_of

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
