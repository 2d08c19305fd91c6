"""What goes on in a session, as a process knows it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest

from foremind.domain.errors import InvalidMessage
from foremind.domain.session_state import MOST_FLAGS, SessionState, StatePatch, patched
from foremind.gateway.live_state import LiveState

NOW = datetime(2026, 5, 20, tzinfo=UTC)


class Store:
    """A store whose answers come when the test lets them."""

    def __init__(self) -> None:
        self.state = SessionState("first")
        self.reads = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.announce: Callable[[], None] = lambda: None

    async def read(self, *_: object) -> SessionState:
        """Return what was stored when it was asked."""
        self.reads += 1
        state = self.state
        await self.go_on.wait()
        return state

    async def change(self, _: int, __: UUID, patch: StatePatch, ___: datetime) -> SessionState:
        """Store a patch."""
        self.state = patched(self.state, patch)
        self.announce()
        return self.state


def held(store: Store) -> LiveState:
    """What is held of one session."""
    return LiveState(cast("Any", store), 1, UUID(int=1))


async def test_it_is_read_once_and_again_when_it_changed_elsewhere() -> None:
    """Nothing of the former is shown meanwhile."""
    store = Store()
    state = held(store)
    await state.read()
    await state.read()
    assert (state.value.task, store.reads) == ("first", 1)
    state.forget()
    assert (state.value.task, state.known) == ("", False)
    await state.read()
    assert store.reads == 2


async def test_a_reading_that_was_overtaken_counts_for_nothing() -> None:
    """By a change here, or by one that is announced."""
    store = Store()
    state = held(store)
    store.go_on.clear()
    reading = asyncio.create_task(state.read())
    while not store.reads:
        await asyncio.sleep(0)
    await state.change(StatePatch(task="second"), NOW)
    store.go_on.set()
    await reading
    assert state.value.task == "second"


async def test_a_change_that_is_announced_before_it_is_answered_is_known() -> None:
    """The announcement may be the quicker of the two."""
    store = Store()
    state = held(store)
    await state.read()
    store.announce = state.forget
    await state.change(StatePatch(task="second"), NOW)
    assert (state.value.task, state.known) == ("second", True)


def test_a_patch_changes_what_it_names() -> None:
    """Null takes away; everything may be taken at once."""
    state = SessionState("a task", {"a": 1, "b": True})
    assert patched(state, StatePatch()) == state
    assert patched(state, StatePatch(task=None)).task == ""
    assert patched(state, StatePatch(flags={"a": None, "c": "x"})).flags == {"b": True, "c": "x"}
    assert patched(state, StatePatch(flags=None)).flags == {}
    full = SessionState("", {f"f{number}": 1 for number in range(MOST_FLAGS)})
    assert len(patched(full, StatePatch(flags={"f0": None, "x": 1})).flags) == MOST_FLAGS
    with pytest.raises(InvalidMessage, match="at most 32"):
        patched(full, StatePatch(flags={"x": 1}))
