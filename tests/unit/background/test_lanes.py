"""How many lanes a worker claims, and when a failed step is retried."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

from foremind.background.lanes import MAX_HELD_BACK, HeldBack, Limit, RunningLane, RunningLanes
from foremind.background.step_definitions import STEPS_BY_NAME, after_failure
from foremind.domain.relationship import RelationshipState
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings
from foremind.domain.step import ClaimLimits, Lane, StepState

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
RULES, PLACE = Limit("place"), Limit("place", "a")


def relationship_of(id_: int, companion: int) -> RelationshipState:
    """Return a relationship in which nothing has happened."""
    return RelationshipState(
        id=id_, user_name="Ana", companion_name="Wren", time_zone="UTC", language=None,
        companion_settings=CompanionSettings(), settings=RelationshipSettings(),
        stated_turn_id=0, noted_turn_id=0, summarised_turn_id=0,
        narrated_turn_id=0, habits_at=None, dismissed=frozenset(), salt=UUID(int=0), erasures=0,
        remade=(), companion_id=companion, due_at=None, steps_due=frozenset(), open_sessions=(),
    )  # fmt: skip


def running(*claims: tuple[Lane, str, int]) -> RunningLanes:
    """Return lanes of as many relationships: lane, place and companion."""
    lanes = RunningLanes()
    for id_, (lane, place, companion) in enumerate(claims):
        lanes.add(RunningLane(relationship_of(id_, companion), lane, place))
    return lanes


def test_work_by_rules_and_by_models_does_not_count_against_each_other() -> None:
    """However much of either is running."""
    rules: list[tuple[Lane, str, int]] = [("rules", "a", 1)] * 4
    assert running(*rules).claim_limits() == ClaimLimits(full=("",))
    models: list[tuple[Lane, str, int]] = [("model", str(number), number) for number in range(16)]
    assert running(*models).claim_limits() == ClaimLimits(models_full=True)
    assert running(*rules, *models).claim_limits() is None


def test_ratings_and_other_work_share_the_places_of_a_model() -> None:
    """Four in all, of which one companion gets three."""
    lanes = running(("model", "a", 1), ("rating", "a", 1), ("rating", "a", 1))
    assert lanes.claim_limits() == ClaimLimits(full_of=(("a", 1),))
    lanes = running(("model", "a", 1), ("rating", "a", 1), ("rating", "a", 2), ("model", "a", 3))
    assert lanes.claim_limits() == ClaimLimits(full=("a",))


async def test_a_lane_whose_lease_was_not_renewed_is_lost() -> None:
    """Unless it was not claimed yet, or has ended meanwhile."""
    lanes = running(("model", "a", 1), ("rules", "", 1), ("rules", "", 2))
    first, second, _ = lanes
    first.task = second.task = asyncio.create_task(asyncio.sleep(0))
    before = lanes.claimed()
    assert lanes.lost(before, {(1, "rules")}) == [first]
    lanes.discard(first)
    assert lanes.lost(before, set()) == [second]
    assert not first.waits_for_slot


def test_a_turn_backs_off_from_two_seconds_to_an_hour_and_is_held_after_twelve_failures() -> None:
    """Its delays double; an outage holds it later, and a changed source is retried at once."""
    retry = STEPS_BY_NAME["ingest"].retry

    def waiting(attempts: int) -> StepState:
        return StepState("ingest", "ingest", "", NOW, NOW, 3, attempts, None, None, turn_id=7)

    delays = []
    for attempts in range(11):
        failure = after_failure(retry, waiting(attempts), "ValueError", NOW)
        assert failure.due_at is not None and failure.held_at is None
        assert (failure.step, failure.turn_id, failure.marks) == ("ingest", 7, 3)
        delays.append(failure.due_at - NOW)
    assert delays == [timedelta(seconds=2**n) for n in range(1, 12)]
    held = after_failure(retry, waiting(11), "ValueError", NOW)
    assert (held.attempts, held.due_at, held.held_at) == (12, None, NOW)
    outage = after_failure(retry, waiting(11), "storage_unavailable", NOW)
    assert outage.due_at == NOW + timedelta(hours=1)
    assert after_failure(retry, waiting(0), "conflict", NOW).due_at == NOW


def test_each_limit_has_a_queue_of_its_own() -> None:
    """A relationship waits once for each."""
    held = HeldBack()
    for limit, relationship in ((RULES, 1), (PLACE, 2), (RULES, 3), (RULES, 1), (PLACE, 1)):
        held.add(limit, relationship)
    assert [held.take(RULES), held.take(RULES), held.take(RULES)] == [1, 3, None]
    assert held.is_waiting(PLACE) and not held.is_waiting(RULES)
    assert [held.take(PLACE), held.take(PLACE), held.take(PLACE)] == [2, 1, None]
    assert len(held) == 0


def test_no_more_than_a_number_of_them_are_kept() -> None:
    """In all queues together."""
    held = HeldBack()
    for relationship in range(MAX_HELD_BACK + 5):
        held.add(RULES if relationship % 2 else PLACE, relationship)
    assert len(held) == MAX_HELD_BACK
    held.add(Limit("models"), 1)
    assert not held.is_waiting(Limit("models"))
