"""Schedules full garbage collections: rarely, because they block the event loop.

Most objects are freed at once by reference counting; only reference cycles need the collector. By
default it would scan all objects of sessions and connections whenever many of them have been
opened and closed: 20 ms with 150 sessions, every other second of a flood.
"""

import gc
import sys
from typing import Self

import structlog

from foremind.runtime.supervision import SupervisedLoop, Supervisor

_INTERVAL_S = 30.0
_GROWTH = 1.25  # of allocated blocks since the last collection
_YOUNG = (700, 10)  # Python's defaults; with longer intervals, one collection takes tens of ms
_NEVER = 2**31 - 1

_log = structlog.get_logger("foremind.runtime.garbage_collection")


class FullCollectionPolicy:
    """Runs a full collection only when Python's memory has grown by a quarter since the last one.

    Collections of the young generations stay automatic; they take about a millisecond. Objects that
    exist on entry are frozen and never scanned: they live as long as the server.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._thresholds_before = gc.get_threshold()
        self._baseline = 0  # allocated blocks after the last collection
        self._loop: SupervisedLoop | None = None

    async def __aenter__(self) -> Self:
        gc.freeze()
        gc.set_threshold(*_YOUNG, _NEVER)
        self._baseline = sys.getallocatedblocks()
        self._loop = self._supervisor.every("garbage", _INTERVAL_S, self._collect_if_grown)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        gc.set_threshold(*self._thresholds_before)
        gc.unfreeze()

    async def _collect_if_grown(self) -> None:
        allocated = sys.getallocatedblocks()
        if has_grown(allocated, self._baseline):
            freed = gc.collect()
            self._baseline = sys.getallocatedblocks()
            _log.debug("garbage.collected", held=allocated, left=self._baseline, freed=freed)


def has_grown(allocated: int, baseline: int) -> bool:
    """Return whether the number of allocated blocks has grown enough for a full collection."""
    return allocated >= baseline * _GROWTH
