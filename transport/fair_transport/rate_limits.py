"""Rate limits. Pure: `now` is passed in, in monotonic seconds."""


class TokenBucket:
    """A token bucket: admits `rate` tokens per second, and bursts of `burst_s` seconds' worth.

    Args:
        max_debt: the largest debt that is recorded; requests beyond it cost nothing more.
    """

    __slots__ = ("_capacity", "_max_debt", "_rate", "_tokens", "_updated_at")

    def __init__(self, rate: float, burst_s: float, max_debt: float = float("inf")) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * burst_s)
        self._max_debt = max_debt
        self._tokens = self._capacity
        self._updated_at = 0.0

    @property
    def capacity(self) -> float:
        """The number of tokens in a full bucket."""
        return self._capacity

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take tokens, going into debt if necessary; return the seconds until the debt is paid."""
        self._refill(now)
        self._tokens = max(-self._max_debt, self._tokens - amount)
        return max(0.0, -self._tokens / self._rate)

    def wait(self, now: float, amount: float = 1.0) -> float:
        """Return the seconds until `amount` tokens are available, without taking any."""
        self._refill(now)
        return max(0.0, (amount - self._tokens) / self._rate)

    def _refill(self, now: float) -> None:
        self._tokens = min(
            self._capacity, self._tokens + max(0.0, now - self._updated_at) * self._rate
        )
        self._updated_at = now


class ViolationBudget:
    """Distinguishes senders that ignore rate limits from those that adapt to them.

    A sender that waits for its responses adapts; one that keeps sending accumulates pressure: the
    time it was delayed less the time it was idle.
    """

    __slots__ = ("_max_pressure_s", "_pressure_s")

    def __init__(self, max_pressure_s: float) -> None:
        self._max_pressure_s = max_pressure_s
        self._pressure_s = 0.0

    def exceeded(self, delay_s: float, idle_s: float) -> bool:
        """Record a sender's current delay and its preceding idle time; return if over budget."""
        self._pressure_s = max(0.0, self._pressure_s + delay_s - idle_s)
        return self._pressure_s > self._max_pressure_s
