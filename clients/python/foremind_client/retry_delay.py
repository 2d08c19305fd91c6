"""How long to wait before connecting again. Pure."""

FIRST_RETRY_S = 0.25
_LAST_RETRY_S = 15.0
_MAX_DOUBLINGS = 64  # more than reach the last delay; a larger power would not be a float


def max_retry_delay(first_s: float, failures: int) -> float:
    """Return the longest delay in seconds after `failures` failures in a row, from 1 on.

    It doubles with each failure, up to 15 s.
    """
    doublings = min(failures - 1, _MAX_DOUBLINGS)
    return min(_LAST_RETRY_S, first_s * 2.0**doublings)
