"""The report of `make hostile`."""

import json
from pathlib import Path

from loadtests.hostile.report import USUAL_PROFILE, add_result, merged, read_results

from tests.conftest import ROOT

PROFILE = {"typists": 50, "rounds": 1, "messages": 3}


def result(attack: str, attackers: int, ratio: float) -> dict[str, object]:
    """Return what was measured of one attack."""
    return {"attack": attack, "attackers": attackers, "p99_ratio": ratio}


def test_an_attack_measured_again_replaces_its_result_and_no_other() -> None:
    """Results stay in the order of the attacks, whatever order they are measured in."""
    pings, chunks = result("pings", 50, 1.0), result("chunks", 50, 2.0)
    fewer, again = result("chunks", 1, 1.0), result("chunks", 50, 1.1)
    assert merged([], [chunks, pings]) == [pings, chunks]
    assert merged([pings, chunks], [again]) == [pings, again]
    assert merged([pings, chunks], [fewer]) == [pings, fewer, chunks]


def test_a_report_is_complete_after_every_attack(tmp_path: Path) -> None:
    """So that a run that is ended has lost nothing."""
    path = tmp_path / "results" / "hostile.json"
    for number, attack in enumerate(("pings", "chunks"), 1):
        add_result(path, PROFILE, result(attack, 50, 1.0))
        assert len(json.loads(path.read_text())["attacks"]) == number


def test_results_of_another_profile_are_never_mixed(tmp_path: Path) -> None:
    """A report begins anew with other numbers of typists, rounds or messages."""
    path = tmp_path / "hostile.json"
    assert read_results(path, PROFILE) == []
    add_result(path, PROFILE, result("pings", 50, 1.0))
    longer = {**PROFILE, "rounds": 3}
    assert read_results(path, longer) is None
    add_result(path, longer, result("chunks", 50, 1.0))
    assert read_results(path, longer) == [result("chunks", 50, 1.0)]


def test_an_attack_can_be_measured_alone() -> None:
    """Beside the published results, unless another profile is asked for."""
    published = read_results(ROOT / "loadtests" / "results" / "hostile.json", USUAL_PROFILE)
    assert published
