"""What a health check says: `ok`, or what is wrong. Pure."""

OK = "ok"
_DEGRADED = "degraded: "


def degraded(problem: str) -> str:
    """Return the outcome for a problem that makes the server slower, but not unready."""
    return _DEGRADED + problem


def without_details(outcome: str) -> str:
    """Return an outcome without what is wrong, which may name the operator's models and hosts."""
    if outcome == OK:
        return OK
    return degraded("see the log") if allows_traffic(outcome) else "failed; see the log"


def allows_traffic(outcome: str) -> bool:
    """Return whether a server with this outcome can serve players."""
    return outcome == OK or outcome.startswith(_DEGRADED)
