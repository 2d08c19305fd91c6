"""Connection limits per client address; game servers and loopback are exempt."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network, IPv6Network, ip_address

from foremind.domain.errors import Overloaded
from foremind.domain.settings.settings import is_loopback

_MAX_EXCESS = 500  # unidentified connections of one address over its limit: they may be a host's


class AddressSlot:
    """The slot that one connection occupies at its address.

    Args:
        on_identified: called once the connection has identified itself.
    """

    def __init__(
        self,
        limits: "AddressLimits",
        address: str,
        on_identified: Callable[[], None] = lambda: None,
    ) -> None:
        self._limits = limits
        self._on_identified = on_identified
        self._address = address
        self._counted = bool(address)
        excess = limits.acquire(address) - limits.max_connections if address else 0
        #: The address was at its limit when this connection arrived: only a host may stay.
        self.for_hosts_only = excess > 0
        #: The address was also over the allowance for unidentified connections.
        self.refused = excess > _MAX_EXCESS

    def identify(self, *, host: bool) -> None:
        """Record whether the connection's token is a host's, which has no limit per address.

        Raises:
            Overloaded: the address is at its connection limit.
        """
        if host:
            self.release()
        elif (
            self.for_hosts_only and self._limits.count(self._address) > self._limits.max_connections
        ):
            raise Overloaded("Too many connections from this address.")
        self.for_hosts_only = False
        self._on_identified()

    def release(self) -> None:
        """Free the slot; idempotent."""
        if self._counted:
            self._counted = False
            self._limits.release(self._address)


class AddressLimits:
    """Counts connections by address; loopback and host networks are unlimited.

    Args:
        max_connections: limit per address.
        hosts: networks of game servers, each of which connects for many players.
    """

    def __init__(self, max_connections: int, hosts: tuple[IPv4Network | IPv6Network, ...]) -> None:
        self.max_connections = max_connections
        self._hosts = hosts
        self._counts: Counter[str] = Counter()

    @contextmanager
    def slot(
        self, address: str, on_identified: Callable[[], None] = lambda: None
    ) -> Iterator[AddressSlot]:
        """Count a connection for the duration of the block.

        Args:
            on_identified: called once the connection has identified itself.
        """
        slot = AddressSlot(self, "" if self._exempt(address) else address, on_identified)
        try:
            yield slot
        finally:
            slot.release()

    def count(self, address: str) -> int:
        """Return the number of connections counted for an address."""
        return self._counts[address]

    def acquire(self, address: str) -> int:
        """Count one more connection; return the new number."""
        self._counts[address] += 1
        return self._counts[address]

    def release(self, address: str) -> None:
        """Count one connection less."""
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _exempt(self, address: str) -> bool:
        if not address or is_loopback(address):
            return True
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._hosts)
