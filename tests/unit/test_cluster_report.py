"""What `make cluster` reports of what its players were told."""

from loadtests.cluster.audit import Outcome
from loadtests.cluster.players import Player
from loadtests.cluster.report import baseline_report, fault_report, merged


def test_messages_before_the_warm_up_do_not_count() -> None:
    """Rates and latencies are of those after it."""
    player = Player("ana", accepted_ms=[900.0, 2.0, 4.0], ready_ms=[800.0, 1.0, 1.0])
    report = baseline_report({player: 1}, seconds=4.0)
    assert report["messages_a_second"] == 0.5
    assert report["accepted_ms"] == {"p50": 3.0, "p99": 4.0}
    assert report["ready_ms"]["p50"] == 1.0


def test_losses_and_outages_of_all_players_are_counted() -> None:
    """Each lost connection is one outage."""
    players = [Player("ana", outages=[0.2, 0.4], gaps=[(1, 3)]), Player("bo", errors=["gone"])]
    report = fault_report(Outcome(9, lost=["a"], doubled=["b", "c"]), players)
    assert (report["messages"], report["lost"], report["doubled"]) == (9, 1, 2)
    assert (report["gaps"], report["errors"], report["connections_lost"]) == (1, 1, 2)
    assert report["talking_again_s"]["max"] == 0.4


def test_a_run_replaces_the_one_of_its_kind() -> None:
    """Other databases, numbers of gateways and faults stay."""
    kind = {"database": "postgresql", "gateways": 2, "fault": "nats_kill"}
    others = [kind | {"database": "citus"}, kind | {"gateways": 1}, kind | {"fault": "none"}]
    runs = merged([*others, kind | {"lost": 1}], kind | {"lost": 0})
    assert len(runs) == 4
    assert kind | {"lost": 0} in runs
    assert runs[0]["gateways"] == 1
    assert runs[-1]["database"] == "citus"
