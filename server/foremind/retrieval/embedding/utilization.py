"""How busy something is: the share of the last second or so that it worked. Pure."""

import math

_MEMORY_S = 1.0  # work counts for e times less after each such time
_NEWEST = 0.1  # share of the newest piece in the usual one


class Utilization:
    """Times are seconds of the clock's monotonic time."""

    def __init__(self, usual_s: float) -> None:
        self.usual_s = usual_s  #: the CPU time that one piece of work takes, lately
        self._share = 0.0
        self._at = 0.0

    def worked(self, started: float, ended: float, cpu_s: float) -> None:
        """A piece of work took place."""
        took = ended - started
        self.usual_s += _NEWEST * (cpu_s - self.usual_s)
        self._share = self.share(ended) + (1 - math.exp(-took / _MEMORY_S))
        self._at = ended

    def share(self, now: float) -> float:
        """Return the share of its time that it worked lately, 0 to 1."""
        return min(1.0, self._share * math.exp(-max(0.0, now - self._at) / _MEMORY_S))
