"""When the garbage collector goes through everything: seldom, because everybody waits meanwhile.

What ends is freed at once, by reference counts; only what refers to itself in a circle waits for
the collector. By itself it would go through all that sessions and connections hold whenever many of
them have come and gone: 20 ms with 150 sessions, every other second of a flood.
"""

import gc
import sys
from typing import Self

import structlog

from foremind.runtime.supervision import SupervisedLoop, Supervisor

_EVERY_S = 5.0
_GROWN = 1.25  # times what was left the last time
_NEVER = 2**31 - 1

_log = structlog.get_logger("foremind.runtime.garbage_collection")


class FullCollectionPolicy:
    """Keeps full collections to when Python's memory has grown by a quarter since the last one.

    Collections of what is young go on by themselves; they take about a millisecond. What is there
    when this begins is never gone through: it stays as long as the server.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._usual = gc.get_threshold()
        self._left = 0  # blocks of memory, after the last collection
        self._loop: SupervisedLoop | None = None

    async def __aenter__(self) -> Self:
        gc.freeze()
        gc.set_threshold(*self._usual[:2], _NEVER)
        self._left = sys.getallocatedblocks()
        self._loop = self._supervisor.every("garbage", _EVERY_S, self._look)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        gc.set_threshold(*self._usual)
        gc.unfreeze()

    async def _look(self) -> None:
        held = sys.getallocatedblocks()
        if is_due(held, self._left):
            freed = gc.collect()
            self._left = sys.getallocatedblocks()
            _log.debug("garbage.collected", held=held, left=self._left, freed=freed)


def is_due(held: int, left: int) -> bool:
    """Tell whether what is held has grown by enough since a collection left so much of it."""
    return held >= left * _GROWN
