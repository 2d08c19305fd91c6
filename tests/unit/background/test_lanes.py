"""How many lanes a worker claims, and when a failed step is retried."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from foremind.background.step_definitions import STEPS_BY_NAME, after_failure
from foremind.background.step_runner import RunningLane
from foremind.background.worker import claim_limits
from foremind.domain.background_step import ClaimLimits, Lane, StepState
from foremind.domain.relationship import RelationshipState
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def relationship_of(id_: int, companion: int) -> RelationshipState:
    """Return a relationship in which nothing has happened."""
    return RelationshipState(
        id=id_, user_name="Ana", companion_name="Wren", time_zone="UTC", language=None,
        companion_settings=CompanionSettings(), settings=RelationshipSettings(),
        stated_turn_id=0, noted_turn_id=0, summarised_turn_id=0,
        narrated_turn_id=0, habits_at=None, dismissed=frozenset(), salt=UUID(int=0), erasures=0,
        remade=(), companion_id=companion, due_at=None, in_world=False, steps_due=frozenset(),
        open_sessions=(),
    )  # fmt: skip


def limits_beside(*claims: tuple[Lane, str, int]) -> ClaimLimits | None:
    """Return what may not run beside lanes of as many relationships: lane, place and companion."""
    return claim_limits(
        RunningLane(relationship_of(id_, companion), lane, place)
        for id_, (lane, place, companion) in enumerate(claims)
    )


def test_work_by_rules_and_by_models_does_not_count_against_each_other() -> None:
    """However much of either is running."""
    rules: list[tuple[Lane, str, int]] = [("rules", "a", 1)] * 4
    assert limits_beside(*rules) == ClaimLimits(full=("",))
    models: list[tuple[Lane, str, int]] = [("model", str(number), number) for number in range(16)]
    assert limits_beside(*models) == ClaimLimits(models_full=True)
    assert limits_beside(*rules, *models) is None


def test_ratings_and_other_work_share_the_places_of_a_model() -> None:
    """Four in all, of which one companion gets three."""
    limits = limits_beside(("model", "a", 1), ("rating", "a", 1), ("rating", "a", 1))
    assert limits == ClaimLimits(full_of=(("a", 1),))
    limits = limits_beside(
        ("model", "a", 1), ("rating", "a", 1), ("rating", "a", 2), ("model", "a", 3)
    )
    assert limits == ClaimLimits(full=("a",))


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
