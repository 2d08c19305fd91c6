"""What is written to `cluster.json` of one run. Pure."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from loadtests.cluster.audit import Outcome
from loadtests.cluster.players import Player

_KEYS = ("database", "gateways", "fault")  # of which the file has one run each


def fault_report(outcome: Outcome, players: Sequence[Player]) -> dict[str, Any]:
    """Return what became of the messages, and how long players were cut off."""
    outages = [outage for player in players for outage in player.outages]
    return {
        "players": len(players),
        "messages": outcome.messages,
        "lost": len(outcome.lost),
        "doubled": len(outcome.doubled),
        "gaps": sum(len(player.gaps) for player in players),
        "errors": sum(len(player.errors) for player in players),
        "connections_lost": len(outages),
        "talking_again_s": _spread(outages, 90, "max") if outages else None,
    }


def baseline_report(since: dict[Player, int], seconds: float) -> dict[str, Any]:
    """Return how many messages a second were accepted, and how soon.

    Args:
        since: how many messages of each player came before, which do not count.
    """
    accepted_ms, ready_ms = [], []
    for player, first in since.items():
        accepted_ms += player.accepted_ms[first:]
        ready_ms += player.ready_ms[first:]
    return {
        "messages_a_second": round(len(accepted_ms) / seconds, 1),
        "accepted_ms": _spread(accepted_ms, 99),
        "ready_ms": _spread(ready_ms, 99),
    }


def merged(runs: list[dict[str, Any]], run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs with this one in the place of an earlier one of its kind."""
    kept = [other for other in runs if any(other[key] != run[key] for key in _KEYS)]
    return sorted([*kept, run], key=lambda run: (run["database"] != "postgresql", run["gateways"]))


def _spread(values: Sequence[float], percent: int, *also: str) -> dict[str, float]:
    ordered = sorted(values)
    spread = {
        "p50": round(median(ordered), 2),
        f"p{percent}": round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 2),
    }
    return spread | {name: round(ordered[-1], 2) for name in also}
