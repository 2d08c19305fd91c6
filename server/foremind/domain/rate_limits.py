"""Limits of rates. Pure: `now` is given, in monotonic seconds."""


class TokenBucket:
    """The token bucket: lets `rate` through each second, and `burst_s` seconds of it at once.

    Args:
        most_owed: what can be owed at most; beyond that nothing more is held against the taker.
    """

    __slots__ = ("_at", "_left", "_most", "_owed", "_rate")

    def __init__(self, rate: float, burst_s: float, most_owed: float = float("inf")) -> None:
        self._rate = rate
        self._most = max(1.0, rate * burst_s)
        self._owed = most_owed
        self._left = self._most
        self._at = 0.0

    @property
    def most(self) -> float:
        """What may be taken at once, after a rest."""
        return self._most

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take some, if need be in advance; return the seconds until it is due."""
        self._fill(now)
        self._left = max(-self._owed, self._left - amount)
        return max(0.0, -self._left / self._rate)

    def wait(self, now: float, amount: float = 1.0) -> float:
        """Return the seconds until some can be taken without owing it, taking none."""
        self._fill(now)
        return max(0.0, (amount - self._left) / self._rate)

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now


class ViolationBudget:
    """Tells a sender that presses on from one that falls into step with its limits.

    One that waits for its answers falls into step; one that keeps sending builds up pressure, which
    is the time it was held back less the time it left the server waiting.
    """

    __slots__ = ("_most_s", "_pressure_s")

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._pressure_s = 0.0

    def lost(self, held_back_s: float, idle_s: float) -> bool:
        """Note how long the sender must wait now, and how long it had let the server wait."""
        self._pressure_s = max(0.0, self._pressure_s + held_back_s - idle_s)
        return self._pressure_s > self._most_s
