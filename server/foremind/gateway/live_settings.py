"""Companions and relationship settings that open sessions share, kept up to date."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Self, TypeVar
from weakref import WeakValueDictionary

import structlog

from foremind.domain.announcements import (
    Announcement,
    CompanionChanged,
    MemoriesForgotten,
    SettingsChanged,
)
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion
from foremind.domain.errors import ForemindError
from foremind.domain.relationship import companion_id_of
from foremind.domain.settings.settings import RelationshipSettings
from foremind.runtime.supervision import TaskSet
from foremind.storage.relationship_store import RelationshipStore

_RETRY_S = 1.0

Value = TypeVar("Value")

_log = structlog.get_logger("foremind.gateway")


class SharedValue(Generic[Value]):
    """A holder that several sessions share; its value is replaced, never mutated."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.load_number = 0  #: the number of the load that the value comes from


class LiveSettings:
    """Shares companions and settings among open sessions, and reloads them when they change.

    Caches nothing that no session uses. Active while entered.
    """

    def __init__(
        self,
        read_companion: Callable[[int], Awaitable[Companion | None]],
        relationships: RelationshipStore,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._companions: _SharedValues[Companion] = _SharedValues(read_companion)
        self._settings: _SharedValues[RelationshipSettings] = _SharedValues(relationships.settings)
        self._reloads = TaskSet()
        self._pending: dict[_Key, asyncio.Task[None]] = {}  # the newest load of each
        #: Number of changes so far; note it before reading what is passed to `settings`.
        self.changes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reloads.stop()

    async def companion(self, known: Companion) -> SharedValue[Companion]:
        """Return the shared, current version of a companion.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        return await self._companions.share(known.id, known, reload=True)

    async def settings(
        self, relationship_id: int, known: RelationshipSettings, changes: int
    ) -> SharedValue[RelationshipSettings]:
        """Return the shared settings of a relationship, reloading them if `known` may be stale.

        Args:
            known: settings that were read from the database.
            changes: `self.changes` before they were read.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        return await self._settings.share(relationship_id, known, reload=changes != self.changes)

    async def reload(self, announcement: CompanionChanged | SettingsChanged) -> None:
        """Reload what this process changed, so that it is in force on return.

        If the database does not answer, the reload is left to the announcement.
        """
        with contextlib.suppress(ForemindError):
            await self._load(_key(announcement))

    def on_announcement(self, announcement: Announcement) -> None:
        """Handle an announcement from this or another process."""
        if isinstance(announcement, CompanionChanged | SettingsChanged | MemoriesForgotten):
            self.changes += 1
            key = _key(announcement)
            task = self._reloads.begin(self._load_with_retries(key), "read-current")
            self._pending[key] = task  # any earlier load is overtaken by this
            task.add_done_callback(partial(self._end, key))

    async def settled(self, relationship_id: int) -> None:
        """Load what is known to have changed for a relationship, unless that is done.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        companion_id = companion_id_of(relationship_id)
        for key in ((CompanionChanged, companion_id), (SettingsChanged, relationship_id)):
            if key in self._pending:
                await self._load(key)

    def _end(self, key: "_Key", task: "asyncio.Task[None]") -> None:
        if self._pending.get(key) is task:
            del self._pending[key]

    async def _load(self, key: "_Key") -> None:
        kind, number = key
        values = self._companions if kind is CompanionChanged else self._settings
        await values.load(number)

    async def _load_with_retries(self, key: "_Key") -> None:
        while True:
            try:
                await self._load(key)
            except ForemindError as error:
                _log.warning("settings.not_read", reason=error.code)
                await self._clock.sleep(_RETRY_S)
            else:
                return


#: A companion by its id, or the settings of a relationship by the relationship's.
_Key = tuple[type[CompanionChanged] | type[SettingsChanged], int]


def _key(announcement: CompanionChanged | SettingsChanged | MemoriesForgotten) -> _Key:
    if isinstance(announcement, CompanionChanged):
        return CompanionChanged, announcement.companion_id
    # An erasure may include the user's own settings.
    return SettingsChanged, announcement.relationship_id


class _SharedValues(Generic[Value]):
    """Shared values by id, for as long as a session uses them."""

    def __init__(self, fetch: Callable[[int], Awaitable[Value | None]]) -> None:
        self._fetch = fetch
        self._shared: WeakValueDictionary[int, SharedValue[Value]] = WeakValueDictionary()
        self._loads = 0

    async def share(self, key: int, known: Value, *, reload: bool) -> SharedValue[Value]:
        """Return the shared value of an id, which is `known` if it is not shared yet."""
        shared = self._shared.setdefault(key, SharedValue(known))
        if reload:
            await self.load(key)
        return shared

    async def load(self, key: int) -> None:
        """Reload a value if it is shared; an older load never overwrites a newer one."""
        shared = self._shared.get(key)
        if shared is None:
            return
        self._loads += 1
        number = self._loads
        value = await self._fetch(key)
        if value is not None and number > shared.load_number:
            shared.load_number = number
            if value != shared.value:  # sessions take another object for a change
                shared.value = value
