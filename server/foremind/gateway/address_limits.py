"""How many connections an address has that are not known to be a host's."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network, IPv6Network, ip_address

from foremind.domain.errors import Overloaded
from foremind.domain.settings import is_loopback

_MOST_BEYOND = 500  # of one address: those that may still turn out to be a host's


class AddressSlot:
    """What one connection counts for among those of its address."""

    def __init__(
        self, addresses: "AddressLimits", address: str, known: Callable[[], None] = lambda: None
    ) -> None:
        self._addresses = addresses
        self._known = known
        self._address = address
        self._counted = bool(address)
        beyond = addresses.enter(address) - addresses.most if address else 0
        #: It came when its address had as many as it may: only a host may stay.
        self.for_hosts_only = beyond > 0
        #: It came when not even that is left.
        self.refused = beyond > _MOST_BEYOND

    def identified(self, *, host: bool) -> None:
        """Learn whether its token is a host's, which is not bound to an address.

        Raises:
            Overloaded: its address has as many connections as it may.
        """
        if host:
            self.leave()
        elif self.for_hosts_only and self._addresses.count(self._address) > self._addresses.most:
            raise Overloaded("Too many connections from this address.")
        self.for_hosts_only = False
        self._known()

    def leave(self) -> None:
        """Count no longer."""
        if self._counted:
            self._counted = False
            self._addresses.leave(self._address)


class AddressLimits:
    """Counts connections by address; loopback and the addresses of hosts have no limit.

    Args:
        most: connections of one address.
        hosts: networks of game servers, each of which speaks for many players.
    """

    def __init__(self, most: int, hosts: tuple[IPv4Network | IPv6Network, ...]) -> None:
        self.most = most
        self._hosts = hosts
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(
        self, address: str, known: Callable[[], None] = lambda: None
    ) -> Iterator[AddressSlot]:
        """Count a connection for as long as the block lasts.

        Args:
            known: called once it has said who it is.
        """
        place = AddressSlot(self, "" if self._boundless(address) else address, known)
        try:
            yield place
        finally:
            place.leave()

    def count(self, address: str) -> int:
        """Return how many are counted for an address."""
        return self._of[address]

    def enter(self, address: str) -> int:
        """Count one more; return how many there are."""
        self._of[address] += 1
        return self._of[address]

    def leave(self, address: str) -> None:
        """Count one less."""
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]

    def _boundless(self, address: str) -> bool:
        if not address or is_loopback(address):
            return True
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._hosts)
