"""The report of `make hostile`: one result for each kind and number of attackers."""

import json
from pathlib import Path
from typing import Any

from loadtests.hostile.attackers import ATTACKS

Result = dict[str, Any]
#: How many typists, rounds and messages the results of a report were measured with.
Profile = dict[str, int]
#: Unless told. That of the published report, so that an attack can be measured alone.
USUAL_PROFILE: Profile = {"typists": 50, "rounds": 1, "messages": 3}


def read_results(path: Path, profile: Profile) -> list[Result] | None:
    """Return the results of a report; None if they were measured with another profile."""
    if not path.exists():
        return []
    report = json.loads(path.read_text())
    same = all(report[name] == number for name, number in profile.items())
    return report["attacks"] if same else None


def merged(earlier: list[Result], newer: list[Result]) -> list[Result]:
    """Return all results, newer ones in place of earlier ones of the same attack. Pure."""
    results = {(result["attack"], result["attackers"]): result for result in [*earlier, *newer]}
    attacks = list(ATTACKS)
    return [results[key] for key in sorted(results, key=lambda key: (attacks.index(key[0]), key))]


def add_result(path: Path, profile: Profile, result: Result) -> None:
    """Write a result into a report; a report with another profile is begun anew."""
    path.parent.mkdir(exist_ok=True)
    results = merged(read_results(path, profile) or [], [result])
    path.write_text(json.dumps({**profile, "attacks": results}, indent=2) + "\n")
