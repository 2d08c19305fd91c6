"""How long to wait before connecting again. Pure."""

FIRST_RETRY_S = 0.25
_LAST_RETRY_S = 15.0
_MAX_DOUBLINGS = 64  # more than reach the last delay; a larger power would not be a float


def failures_after(first_s: float, failures: int, open_s: float) -> int:
    """Return how many attempts in a row have failed, once another connection is lost.

    One that was open for longer than the last delay could have been ends the row: a server that
    closes whatever it opens is not to be asked as often as one that was away for a moment.

    Args:
        open_s: how long the session was open, in seconds; 0 if it was not opened.
    """
    return 1 if open_s > max_retry_delay(first_s, failures) else failures + 1


def max_retry_delay(first_s: float, failures: int) -> float:
    """Return the longest delay in seconds after `failures` failures in a row, from 1 on.

    It doubles with each failure, up to 15 s.
    """
    doublings = min(failures - 1, _MAX_DOUBLINGS)
    return min(_LAST_RETRY_S, first_s * 2.0**doublings)
