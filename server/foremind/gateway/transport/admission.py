"""Who may be connected, and who has to make room: the bounds over all connections."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from foremind.runtime.metrics import Metrics

_MOST_ANONYMOUS_BYTES = 33_554_432  # that wait to be understood, of all who have not said who


class AdmittedConnection(Protocol):
    """A connection."""

    address: str

    def evict(self) -> None:
        """End at once, without a word."""


class Admission:
    """Bounds connections in number, and what anonymous ones hold in bytes.

    Who has not said who it is makes room for who comes: the one that has been silent for longest
    goes first. So nobody is locked out by connections that say nothing, however many.
    """

    def __init__(
        self,
        most: int,
        most_of_address: int,
        exempt: Callable[[str], bool],
        metrics: Metrics,
        most_bytes: int = _MOST_ANONYMOUS_BYTES,
    ) -> None:
        """Bound connections.

        Args:
            most_of_address: anonymous connections of one address.
            exempt: tells an address that many players may share.
        """
        self._most = most
        self._most_of_address = most_of_address
        self._exempt = exempt
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._members: set[AdmittedConnection] = set()
        #: Those that may have to go, and the bytes they hold: silent for longest first.
        self._anonymous: OrderedDict[AdmittedConnection, int] = OrderedDict()
        self._of_address: Counter[str] = Counter()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def anonymous(self) -> int:
        """How many connections may have to make room."""
        return len(self._anonymous)

    def admits(self, address: str) -> bool:
        """Tell whether somebody may connect from an address; make room where there is none."""
        if self._of_address[address] >= self._most_of_address and not self._exempt(address):
            self._metrics.refused.labels("address").inc()
            return False
        if len(self._members) >= self._most and not self.evict_one():
            self._metrics.refused.labels("connections").inc()
            return False
        return True

    def enter(self, member: AdmittedConnection) -> None:
        """Count a connection that was admitted; it is anonymous."""
        self._members.add(member)
        self._metrics.tcp_connections.set(len(self._members))
        self.expose(member)

    def leave(self, member: AdmittedConnection) -> None:
        """Count a connection no longer."""
        if member in self._members:
            self.protect(member)
            self._members.discard(member)
            self._metrics.tcp_connections.set(len(self._members))

    def protect(self, member: AdmittedConnection) -> None:
        """Let a connection stay whoever comes: it said who it is, or is being served."""
        held = self._anonymous.pop(member, None)
        if held is not None:
            self._bytes -= held
            self._of_address[member.address] -= 1
            if not self._of_address[member.address]:
                del self._of_address[member.address]

    def expose(self, member: AdmittedConnection) -> None:
        """Let a connection make room again."""
        if member in self._members and member not in self._anonymous:
            self._anonymous[member] = 0
            self._of_address[member.address] += 1

    def heard(self, member: AdmittedConnection, held: int) -> None:
        """Note that a connection sent something, and how many bytes it now holds."""
        if (before := self._anonymous.get(member)) is None:
            return
        self._anonymous[member] = held
        self._anonymous.move_to_end(member)
        self._bytes += held - before
        while self._bytes > self._most_bytes and self.evict_one():
            pass

    def evict_one(self) -> bool:
        """End the anonymous connection that has been silent for longest; False: there is none."""
        if not self._anonymous:
            return False
        member = next(iter(self._anonymous))
        self.leave(member)
        self._metrics.refused.labels("evicted").inc()
        member.evict()
        return True
