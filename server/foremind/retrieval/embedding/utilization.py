"""Utilization of workers: the share of about the last second that they were busy. Pure."""

import math

_TIME_CONSTANT_S = 1.0  # of the exponential decay of past work
_SMOOTHING = 0.1  # weight of the newest piece of work in the moving average


class Utilization:
    """Exponentially decaying utilization; times are monotonic, in seconds."""

    def __init__(self, typical_cpu_s: float, workers: int = 1) -> None:
        self.typical_cpu_s = typical_cpu_s  #: moving average of the CPU time of a piece of work
        self._workers = workers
        self._share = 0.0
        self._at = 0.0

    def record(self, started: float, ended: float, cpu_s: float) -> None:
        """Add a piece of work."""
        elapsed = ended - started
        self.typical_cpu_s += _SMOOTHING * (cpu_s - self.typical_cpu_s)
        worked = 1 - math.exp(-elapsed / _TIME_CONSTANT_S)
        self._share = self.share(ended) + worked / self._workers
        self._at = ended

    def share(self, now: float) -> float:
        """Return the recent share of time spent working, 0 to 1."""
        return min(1.0, self._share * math.exp(-max(0.0, now - self._at) / _TIME_CONSTANT_S))
