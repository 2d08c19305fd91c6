"""Companions and relationship settings that open sessions share, kept up to date."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Self, TypeVar
from weakref import WeakValueDictionary

import structlog

from foremind.domain.announcements import CompanionChanged, MemoriesForgotten, SettingsChanged
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion, RelationshipSettings
from foremind.domain.errors import ForemindError
from foremind.runtime.supervision import TaskSet
from foremind.storage.companion_store import CompanionStore
from foremind.storage.notifications import Announcement
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
        self, companions: CompanionStore, relationships: RelationshipStore, clock: Clock
    ) -> None:
        self._clock = clock
        self._companions: _SharedValues[Companion] = _SharedValues(companions.get)
        self._settings: _SharedValues[RelationshipSettings] = _SharedValues(relationships.settings)
        self._reloads = TaskSet()
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

    async def changed(self, announcement: CompanionChanged | SettingsChanged) -> None:
        """Reload what this process changed, so that it is in force on return.

        If the database does not answer, the reload is left to the announcement.
        """
        with contextlib.suppress(ForemindError):
            await self._loader(announcement)()

    def heard(self, announcement: Announcement) -> None:
        """Handle an announcement from this or another process."""
        if isinstance(announcement, MemoriesForgotten):  # may include the user's own settings
            announcement = SettingsChanged(announcement.relationship_id)
        if isinstance(announcement, CompanionChanged | SettingsChanged):
            self.changes += 1
            self._reloads.begin(self._load_with_retries(self._loader(announcement)), "read-current")

    async def forget(self) -> None:
        """Reload everything, after announcements may have been missed."""
        self.changes += 1
        await self._companions.load_all()
        await self._settings.load_all()

    def _loader(
        self, announcement: CompanionChanged | SettingsChanged
    ) -> Callable[[], Awaitable[None]]:
        if isinstance(announcement, CompanionChanged):
            return partial(self._companions.load, announcement.companion_id)
        return partial(self._settings.load, announcement.relationship_id)

    async def _load_with_retries(self, load: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await load()
            except ForemindError as error:
                _log.warning("settings.not_read", reason=error.code)
                await self._clock.sleep(_RETRY_S)
            else:
                return


class _SharedValues(Generic[Value]):
    """Shared values by id, for as long as a session uses them."""

    def __init__(self, fetch: Callable[[int], Awaitable[Value | None]]) -> None:
        self._fetch = fetch
        self._held: WeakValueDictionary[int, SharedValue[Value]] = WeakValueDictionary()
        self._loads = 0

    async def share(self, key: int, known: Value, *, reload: bool) -> SharedValue[Value]:
        """Return the shared value of an id, which is `known` if it is not shared yet."""
        shared = self._held.setdefault(key, SharedValue(known))
        if reload:
            await self.load(key)
        return shared

    async def load_all(self) -> None:
        """Reload every value."""
        for key in list(self._held):
            await self.load(key)

    async def load(self, key: int) -> None:
        """Reload a value if it is shared; an older load never overwrites a newer one."""
        shared = self._held.get(key)
        if shared is None:
            return
        self._loads += 1
        number = self._loads
        value = await self._fetch(key)
        if value is not None and number > shared.load_number:
            shared.load_number, shared.value = number, value
