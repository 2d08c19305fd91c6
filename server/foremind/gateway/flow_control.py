"""Rate limits of connections and users. Pure: `now` is given, in monotonic seconds."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Literal

from fair_transport import TokenBucket, ViolationBudget
from foremind.domain.errors import Overloaded
from foremind.domain.settings.settings import Settings, is_loopback
from foremind.gateway.event_stream import MAX_REPLAY_EVENTS
from foremind.gateway.protocol.client_messages import (
    MAX_FRAME_BYTES,
    MAX_ID_CHARS,
    ClientMessage,
    DraftClear,
    DraftUpdate,
)
from foremind.gateway.protocol.server_events import Limits

Kind = Literal["draft", "send"]

MAX_WAITING_MESSAGES = 4  # unanswered messages of one session

_BURST_S = 4.0  # burst size in seconds of the rate
_USER_SHARE = 2.0  # a user's rate over all connections, in rates of one connection
_CHARS_PER_UNIT = 512  # a sent message costs one more unit for this many characters
_PATIENCE_S = 3.0  # a client that exceeds its rate for longer than this is closed
_FIRST_LOCKOUT_S, _MAX_LOCKOUT_S = 30.0, 600.0


class ConnectionBudget:
    """The rates of one connection, or with a larger `share` of a user over all of them."""

    def __init__(self, settings: Settings, share: float = 1.0) -> None:
        self._buckets: dict[Kind, TokenBucket] = {
            "draft": TokenBucket(share * settings.drafts_per_s, _BURST_S),
            "send": TokenBucket(share * settings.sends_per_s, _BURST_S),
        }

    def take(self, kind: Kind, now: float, amount: float = 1.0) -> float:
        """Charge `amount` units, if need be in advance; return the seconds until they are due.

        The charge is capped at the burst size, so that no single message is too expensive.
        """
        bucket = self._buckets[kind]
        return bucket.take(now, min(amount, bucket.capacity))

    def wait_s(self, kind: Kind, now: float, amount: float = 1.0) -> float:
        """Return the seconds until `amount` units can be charged without waiting."""
        bucket = self._buckets[kind]
        return bucket.wait(now, min(amount, bucket.capacity))


class UserBudget(ConnectionBudget):
    """The rates of a user over all connections, and the lockout of a user who violated them.

    Each lockout is twice as long as the one before, up to a maximum. The doubling is reset after a
    period without violations as long as the last lockout.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _USER_SHARE)
        self._last_lockout_s = 0.0
        self._locked_until = 0.0

    def lock_out(self, now: float) -> None:
        """Lock the user out, unless it is locked out already."""
        if self.lockout_s(now):
            return  # because of another connection
        reset = now >= self._locked_until + self._last_lockout_s
        lockout_s = _FIRST_LOCKOUT_S if reset else 2 * self._last_lockout_s
        self._last_lockout_s = min(_MAX_LOCKOUT_S, lockout_s)
        self._locked_until = now + self._last_lockout_s

    def lockout_s(self, now: float) -> float:
        """Return the remaining seconds of the lockout, 0 if there is none."""
        return max(0.0, self._locked_until - now)


class FlowControl:
    """Slows one connection down to its rate, and tells when it must be closed.

    Backpressure, by not reading, is the only brake that costs other connections nothing.
    """

    def __init__(self, budget: ConnectionBudget) -> None:
        self._budget = budget
        #: The user's budget over all connections, once the user is known.
        self.user_budget: UserBudget | None = None
        self._violations = ViolationBudget(_PATIENCE_S)

    def take(self, kind: Kind, idle_s: float, now: float, amount: float = 1.0) -> float | None:
        """Return how long to wait before reading on; None if the connection is to be closed.

        Args:
            idle_s: how long the server had waited for this message.
            amount: its cost in units.
        """
        wait_s = self._budget.take(kind, now, amount)
        if self.user_budget is not None:
            wait_s = max(wait_s, self.user_budget.take(kind, now, amount))
        if not self._violations.exceeded(wait_s, idle_s):
            return wait_s
        if self.user_budget is not None:
            self.user_budget.lock_out(now)
        return None


def kind_of(message: ClientMessage) -> Kind:
    """Return which rate a message is charged to."""
    return "draft" if isinstance(message, DraftUpdate | DraftClear) else "send"


def cost_of(kind: Kind, chars: int) -> float:
    """Return the cost of a message of `chars` characters, in units.

    Sent messages cost by length, because they are embedded, stored, scored and answered. Drafts
    have a flat cost: each one supersedes the one before.
    """
    return 1.0 + chars / _CHARS_PER_UNIT if kind == "send" else 1.0


def limits_of(settings: Settings) -> Limits:
    """Return the limits announced to clients."""
    return Limits(
        max_frame_bytes=MAX_FRAME_BYTES,
        max_text_chars=settings.max_text_chars,
        max_id_chars=MAX_ID_CHARS,
        max_waiting_messages=MAX_WAITING_MESSAGES,
        drafts_per_s=settings.drafts_per_s,
        sends_per_s=settings.sends_per_s,
        http_per_s=settings.http_per_s,
        max_sessions_per_user=settings.max_sessions_per_user,
        resume_s=settings.resume_s,
        replay_events=MAX_REPLAY_EVENTS,
        outbound_bytes=settings.outbound_bytes,
    )


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
