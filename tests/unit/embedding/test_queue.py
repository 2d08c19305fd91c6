"""The waiting line of the embedding thread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.embedding.queue import EmbeddingQueue, Priority
from foremind.errors import Overloaded


def test_enter_is_served_before_pauses_and_those_before_background() -> None:
    """Whatever the order of arrival."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(8)
    for name, priority in [
        ("job", Priority.BACKGROUND),
        ("pause 1", Priority.PAUSE),
        ("pause 2", Priority.PAUSE),
        ("enter", Priority.ENTER),
    ]:
        queue.push(name, priority)
    assert [queue.pop() for _ in range(5)] == ["enter", "pause 1", "pause 2", "job", None]


def test_a_full_queue_lets_the_least_urgent_give_way() -> None:
    """The newest of the lowest class goes; it has waited least."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(3)
    queue.push("job 1", Priority.BACKGROUND)
    queue.push("job 2", Priority.BACKGROUND)
    queue.push("pause", Priority.PAUSE)
    assert queue.push("enter", Priority.ENTER) == "job 2"
    assert len(queue) == 3


def test_a_queue_full_of_equals_refuses() -> None:
    """A typed error, not a longer queue."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(1)
    queue.push("first", Priority.PAUSE)
    with pytest.raises(Overloaded):
        queue.push("second", Priority.PAUSE)
    with pytest.raises(Overloaded):
        queue.push("job", Priority.BACKGROUND)


def test_pressing_enter_moves_a_waiting_pause_forward() -> None:
    """It goes behind those who pressed Enter before."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(8)
    queue.push("other pause", Priority.PAUSE)
    queue.push("mine", Priority.PAUSE)
    queue.push("enter", Priority.ENTER)
    queue.promote(lambda item: item == "mine", Priority.ENTER)
    assert [queue.pop() for _ in range(3)] == ["enter", "mine", "other pause"]


@given(st.lists(st.sampled_from(Priority), max_size=60), st.integers(1, 10))
def test_the_bound_holds_and_nothing_is_lost_silently(
    pushes: list[Priority], capacity: int
) -> None:
    """Every item is served, evicted or refused."""
    queue: EmbeddingQueue[int] = EmbeddingQueue(capacity)
    gone = 0
    for number, priority in enumerate(pushes):
        try:
            gone += queue.push(number, priority) is not None
        except Overloaded:
            gone += 1
        assert len(queue) <= capacity
    served = 0
    while queue.pop() is not None:
        served += 1
    assert served + gone == len(pushes)
