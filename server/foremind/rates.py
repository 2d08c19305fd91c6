"""The token bucket, which limits rates. Pure: `now` is given, in monotonic seconds."""


class Bucket:
    """Lets `rate` through each second, and what `burst_s` seconds of it are at once."""

    def __init__(self, rate: float, burst_s: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate * burst_s)
        self._left = self._most
        self._at = 0.0

    def take(self, now: float) -> float:
        """Take one, if need be in advance; return the seconds until it is due."""
        self._fill(now)
        self._left -= 1.0
        return max(0.0, -self._left / self._rate)

    def wait(self, now: float) -> float:
        """Return the seconds until one can be taken without owing it, taking none."""
        self._fill(now)
        return max(0.0, (1.0 - self._left) / self._rate)

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
