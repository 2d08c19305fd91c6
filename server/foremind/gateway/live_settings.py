"""What open sessions go by, as it is now: companions, and relationships' own settings."""

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
    """Something that all sessions it concerns look at; replaced, never changed."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.read = 0  #: the number of the reading that it comes from


class LiveSettings:
    """Shares companions and settings among open sessions, and reads them anew when they change.

    Holds nothing that no session holds. Runs while entered.
    """

    def __init__(
        self, companions: CompanionStore, relationships: RelationshipStore, clock: Clock
    ) -> None:
        self._clock = clock
        self._companions: _CachedValue[Companion] = _CachedValue(companions.get)
        self._settings: _CachedValue[RelationshipSettings] = _CachedValue(relationships.settings)
        self._reading = TaskSet()
        #: How often something changed; whoever reads notes it first, and shares what it read.
        self.changes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reading.stop()

    async def companion(self, known: Companion) -> SharedValue[Companion]:
        """Return what is shared of a companion, as it is by now.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        return await self._companions.share(known.id, known, anew=True)

    async def settings(
        self, relationship_id: int, read: RelationshipSettings, changes: int
    ) -> SharedValue[RelationshipSettings]:
        """Return what is shared of settings that were read when there were so many `changes`.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        return await self._settings.share(relationship_id, read, anew=changes != self.changes)

    async def changed(self, announcement: CompanionChanged | SettingsChanged) -> None:
        """Read anew what was changed here, so that it is in force when this returns.

        Where the database does not answer it is when the announcement is heard.
        """
        with contextlib.suppress(ForemindError):
            await self._reader(announcement)()

    def heard(self, announcement: Announcement) -> None:
        """Learn that something changed, here or in another process."""
        if isinstance(announcement, MemoriesForgotten):  # settings of its user's may be among it
            announcement = SettingsChanged(announcement.relationship_id)
        if isinstance(announcement, CompanionChanged | SettingsChanged):
            self.changes += 1
            self._keep_reading(self._reader(announcement))

    async def forget(self) -> None:
        """Read everything anew, after announcements may have been missed."""
        self.changes += 1
        await self._companions.read_all()
        await self._settings.read_all()

    def _reader(
        self, announcement: CompanionChanged | SettingsChanged
    ) -> Callable[[], Awaitable[None]]:
        if isinstance(announcement, CompanionChanged):
            return partial(self._companions.read, announcement.companion_id)
        return partial(self._settings.read, announcement.relationship_id)

    def _keep_reading(self, read: Callable[[], Awaitable[None]]) -> None:
        self._reading.begin(self._until_read(read), "read-current")

    async def _until_read(self, read: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await read()
            except ForemindError as error:
                _log.warning("settings.not_read", reason=error.code)
                await self._clock.sleep(_RETRY_S)
            else:
                return


class _CachedValue(Generic[Value]):
    """Values by id, as long as anybody holds them."""

    def __init__(self, find: Callable[[int], Awaitable[Value | None]]) -> None:
        self._find = find
        self._held: WeakValueDictionary[int, SharedValue[Value]] = WeakValueDictionary()
        self._readings = 0

    async def share(self, key: int, read: Value, *, anew: bool) -> SharedValue[Value]:
        """Return what is held under an id, or hold what was read of it."""
        held = self._held.setdefault(key, SharedValue(read))
        if anew:
            await self.read(key)
        return held

    async def read_all(self) -> None:
        """Read everything anew."""
        for key in list(self._held):
            await self.read(key)

    async def read(self, key: int) -> None:
        """Read a value anew, if anybody holds it; an older reading never replaces a newer one."""
        held = self._held.get(key)
        if held is None:
            return
        self._readings += 1
        number = self._readings
        value = await self._find(key)
        if value is not None and number > held.read:
            held.read, held.value = number, value
