"""What a health check says: `ok`, or what is wrong. Pure."""

OK = "ok"
_DEGRADED = "degraded: "


def degraded(problem: str) -> str:
    """Return the outcome for a problem that makes the server slower, but not unready."""
    return _DEGRADED + problem


def allows_traffic(outcome: str) -> bool:
    """Return whether a server with this outcome can serve players."""
    return outcome == OK or outcome.startswith(_DEGRADED)
