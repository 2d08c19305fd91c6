"""Relationships that a limit held back may start in the order in which they came."""

from foremind.background.held_back import MAX_HELD_BACK, HeldBack
from foremind.background.lanes import Limit

RULES, PLACE = Limit("place"), Limit("place", "a")


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
