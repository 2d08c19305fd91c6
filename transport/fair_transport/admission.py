"""Connection admission: limits on the number of connections, and which one is evicted for room."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from fair_transport.options import Hooks

_MAX_ANONYMOUS_BYTES = 33_554_432  # unprocessed bytes of all anonymous connections together


class AdmittedConnection(Protocol):
    """A connection that counts towards the limits."""

    address: str

    def evict(self) -> None:
        """Close at once, without a close frame or response."""


class Admission:
    """Limits the number of connections, and the bytes that anonymous ones buffer.

    A connection is anonymous until it has authenticated. At the limit, a new connection evicts the
    anonymous one that has been silent for longest, so idle connections can never lock others out.
    """

    def __init__(
        self,
        max_connections: int,
        max_per_address: int,
        exempt: Callable[[str], bool],
        hooks: Hooks,
        max_bytes: int = _MAX_ANONYMOUS_BYTES,
    ) -> None:
        """Set the limits.

        Args:
            max_connections: maximum number of connections.
            max_per_address: maximum number of anonymous connections from one address.
            exempt: whether an address may be shared by many players, and so has no such limit.
            max_bytes: maximum bytes that all anonymous connections together may buffer.
        """
        self._max_connections = max_connections
        self._max_per_address = max_per_address
        self._exempt = exempt
        self._hooks = hooks
        self._max_bytes = max_bytes
        self._members: set[AdmittedConnection] = set()
        #: Connections that may be evicted with their buffered bytes, longest silent first.
        self._anonymous: OrderedDict[AdmittedConnection, int] = OrderedDict()
        self._per_address: Counter[str] = Counter()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def anonymous(self) -> int:
        """The number of connections that may be evicted."""
        return len(self._anonymous)

    def admits(self, address: str) -> bool:
        """Tell whether an address may connect, evicting another connection if necessary."""
        if self._per_address[address] >= self._max_per_address and not self._exempt(address):
            self._hooks.on_refused("address")
            return False
        if len(self._members) >= self._max_connections and not self.evict_one():
            self._hooks.on_refused("connections")
            return False
        return True

    def enter(self, member: AdmittedConnection) -> None:
        """Add an admitted connection, which is anonymous at first."""
        self._members.add(member)
        self._hooks.on_connections(len(self._members))
        self.expose(member)

    def leave(self, member: AdmittedConnection) -> None:
        """Remove a connection. Idempotent."""
        if member in self._members:
            self.protect(member)
            self._members.discard(member)
            self._hooks.on_connections(len(self._members))

    def protect(self, member: AdmittedConnection) -> None:
        """Exempt a connection from eviction: it has authenticated, or is being served."""
        buffered = self._anonymous.pop(member, None)
        if buffered is not None:
            self._bytes -= buffered
            self._per_address[member.address] -= 1
            if not self._per_address[member.address]:
                del self._per_address[member.address]

    def expose(self, member: AdmittedConnection) -> None:
        """Make a connection evictable again."""
        if member in self._members and member not in self._anonymous:
            self._anonymous[member] = 0
            self._per_address[member.address] += 1

    def record_activity(self, member: AdmittedConnection, buffered_bytes: int) -> None:
        """Record that a connection sent data, and how many bytes it now buffers.

        Evicts connections while all anonymous ones together exceed the byte limit.
        """
        if (previous := self._anonymous.get(member)) is None:
            return
        self._anonymous[member] = buffered_bytes
        self._anonymous.move_to_end(member)
        self._bytes += buffered_bytes - previous
        while self._bytes > self._max_bytes and self.evict_one():
            pass

    def evict_one(self) -> bool:
        """Evict the anonymous connection that has been silent for longest, if there is one."""
        if not self._anonymous:
            return False
        member = next(iter(self._anonymous))
        self.leave(member)
        self._hooks.on_refused("evicted")
        member.evict()
        return True
