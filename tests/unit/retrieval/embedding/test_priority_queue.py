"""The priority queue of the embedding thread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.errors import Overloaded
from foremind.retrieval.embedding.service import EmbeddingQueue, Priority


def test_items_are_served_by_priority() -> None:
    """Regardless of the order of arrival."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(8)
    for name, priority in [
        ("job", Priority.BACKGROUND),
        ("pause 1", Priority.PAUSE),
        ("pause 2", Priority.PAUSE),
        ("enter", Priority.ENTER),
    ]:
        queue.push(name, priority)
    assert [queue.pop() for _ in range(5)] == ["enter", "pause 1", "pause 2", "job", None]


def test_a_full_queue_evicts_the_least_urgent_item() -> None:
    """The newest of the lowest priority, which has waited least."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(3)
    queue.push("job 1", Priority.BACKGROUND)
    queue.push("job 2", Priority.BACKGROUND)
    queue.push("pause", Priority.PAUSE)
    assert queue.push("enter", Priority.ENTER) == "job 2"
    assert len(queue) == 3


def test_a_queue_full_of_equally_urgent_items_rejects_more() -> None:
    """With a typed error."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(1)
    queue.push("first", Priority.PAUSE)
    with pytest.raises(Overloaded):
        queue.push("second", Priority.PAUSE)
    with pytest.raises(Overloaded):
        queue.push("job", Priority.BACKGROUND)


def test_promotion_moves_an_item_to_the_end_of_a_more_urgent_queue() -> None:
    """As when Enter is pressed while a draft is queued."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(8)
    queue.push("other pause", Priority.PAUSE)
    queue.push("mine", Priority.PAUSE)
    queue.push("enter", Priority.ENTER)
    queue.promote(lambda item: item == "mine", Priority.ENTER)
    assert [queue.pop() for _ in range(3)] == ["enter", "mine", "other pause"]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.data())
def test_an_item_waits_for_at_most_one_item_of_each_other_owner(
    owners: list[str], data: st.DataObject
) -> None:
    """However many the others have, queued or promoted."""
    queue: EmbeddingQueue[tuple[str, int]] = EmbeddingQueue(100, owner=lambda item: item[0])
    for number, owner in enumerate(owners):
        queue.push((owner, number), data.draw(st.sampled_from([Priority.ENTER, Priority.PAUSE])))
    queue.promote(lambda _: True, Priority.ENTER)
    queue.push(("honest", 0), Priority.ENTER)
    served = []
    while (item := queue.pop()) is not None:
        served.append(item)
    assert len(served) == len(owners) + 1
    before = [owner for owner, _ in served[: served.index(("honest", 0))]]
    assert len(before) == len(set(before))


def test_eviction_affects_the_owner_with_most_items() -> None:
    """Its newest item, even if another owner's item is newer."""
    queue: EmbeddingQueue[str] = EmbeddingQueue(4, owner=lambda item: item[0])
    for item in ("a1", "a2", "a3", "b1"):
        queue.push(item, Priority.EAGER)
    assert queue.push("c1", Priority.ENTER) == "a3"
    assert [queue.pop() for _ in range(5)] == ["c1", "a1", "b1", "a2", None]


@given(st.lists(st.sampled_from(Priority), max_size=60), st.integers(1, 10))
def test_the_capacity_holds_and_no_item_is_lost_silently(
    pushes: list[Priority], capacity: int
) -> None:
    """Every item is served, evicted or rejected."""
    queue: EmbeddingQueue[int] = EmbeddingQueue(capacity)
    dropped = 0
    for number, priority in enumerate(pushes):
        try:
            dropped += queue.push(number, priority) is not None
        except Overloaded:
            dropped += 1
        assert len(queue) <= capacity
    served = 0
    while queue.pop() is not None:
        served += 1
    assert served + dropped == len(pushes)
