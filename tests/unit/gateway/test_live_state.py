"""The cached session state is loaded once and is never stale."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest

from foremind.domain.errors import InvalidMessage
from foremind.domain.session_state import MAX_FLAGS, SessionState, StatePatch, apply_state_patch
from foremind.gateway.conversation import LiveState

NOW = datetime(2026, 5, 20, tzinfo=UTC)


class SlowStore:
    """A store that answers reads when `answer` is set."""

    def __init__(self) -> None:
        self.state = SessionState("first")
        self.reads = 0
        self.answer = asyncio.Event()
        self.answer.set()
        self.announce: Callable[[], None] = lambda: None

    async def read(self, *_: object) -> tuple[SessionState, int]:
        """Return the state as of the call."""
        self.reads += 1
        state = self.state
        await self.answer.wait()
        return state, self.reads

    async def change(
        self, _: int, __: UUID, patch: StatePatch, ___: datetime
    ) -> tuple[SessionState, int]:
        """Apply a patch, and announce it before returning."""
        self.state = apply_state_patch(self.state, patch)
        self.announce()
        return self.state, self.reads


def live_state(store: SlowStore) -> LiveState:
    """Return the cached state of one session."""
    return LiveState(cast("Any", store), 1, UUID(int=1))


async def test_the_state_is_read_once_and_again_after_a_remote_change() -> None:
    """The stale value is not visible meanwhile."""
    store = SlowStore()
    state = live_state(store)
    await state.read()
    await state.read()
    assert (state.value.task, store.reads) == ("first", 1)
    state.invalidate()
    assert (state.value.task, state.known) == ("", False)
    await state.read()
    assert store.reads == 2


async def test_a_read_that_a_change_overtakes_is_discarded() -> None:
    """Its answer is stale."""
    store = SlowStore()
    state = live_state(store)
    store.answer.clear()
    reading = asyncio.create_task(state.read())
    while not store.reads:
        await asyncio.sleep(0)
    await state.change(StatePatch(task="second"), NOW)
    store.answer.set()
    await reading
    assert state.value.task == "second"


async def test_a_change_announced_before_its_answer_is_visible() -> None:
    """The announcement may be faster than the answer."""
    store = SlowStore()
    state = live_state(store)
    await state.read()
    store.announce = state.invalidate
    await state.change(StatePatch(task="second"), NOW)
    assert (state.value.task, state.known) == ("second", True)


def test_a_patch_changes_only_the_fields_it_names() -> None:
    """Null removes a field, a flag, or all flags."""
    state = SessionState("a task", {"a": 1, "b": True})
    assert apply_state_patch(state, StatePatch()) == state
    assert apply_state_patch(state, StatePatch(task=None)).task == ""
    assert apply_state_patch(state, StatePatch(flags={"a": None, "c": "x"})).flags == {
        "b": True,
        "c": "x",
    }
    assert apply_state_patch(state, StatePatch(flags=None)).flags == {}
    full = SessionState("", {f"f{number}": 1 for number in range(MAX_FLAGS)})
    assert len(apply_state_patch(full, StatePatch(flags={"f0": None, "x": 1})).flags) == MAX_FLAGS
    with pytest.raises(InvalidMessage, match="at most 32"):
        apply_state_patch(full, StatePatch(flags={"x": 1}))
