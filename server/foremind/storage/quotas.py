"""What one player may store and have a language model write, which bounds what it costs."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, StorageFull, StorageUnavailable, TokenLimitReached
from foremind.domain.relationship import MAX_COMPANIONS
from foremind.runtime.supervision import SupervisedLoop, Supervisor, begin, stop
from foremind.storage.database import Database

_STORE_INTERVAL_S = 5.0
_READ_S = 60.0  # for which what others have stored is only added to
#: Share of a day's tokens from which on only replies are made, and nothing that nobody waits for.
REPLIES_ONLY_SHARE = 0.9


@dataclass(slots=True)
class _SpentTokens:
    """A user's tokens of a day by companion; `stored` has those of other processes, too."""

    stored: Counter[int] = field(default_factory=Counter)
    unstored: Counter[int] = field(default_factory=Counter)
    read_at: float = float("-inf")


class TokenQuota:
    """Counts the tokens of users with a limit, and stores them periodically and when it exits.

    The days are those of UTC. A killed process forgets the tokens of five seconds.
    """

    def __init__(self, database: Database, supervisor: Supervisor, clock: Clock) -> None:
        self._database = database
        self._supervisor = supervisor
        self._clock = clock
        self._loop: SupervisedLoop | None = None
        self._users: LRUCache[tuple[int, date], _SpentTokens] = LRUCache(_MAX_USERS)
        self._changed: dict[tuple[int, date], _SpentTokens] = {}  # those with unstored tokens

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.every("spent-tokens", _STORE_INTERVAL_S, self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()
        with suppress(ForemindError):
            await self.store()

    async def admit(
        self, relationship_id: int, limit: int, *, of_companion: bool, is_reply: bool
    ) -> None:
        """Check that a request may be made.

        Args:
            of_companion: whether the limit is for the user's tokens with this companion alone.
            is_reply: whether a player waits for it.

        Raises:
            TokenLimitReached: not before tomorrow.
            StorageUnavailable: it is unknown what was spent.
        """
        now = self._clock.now().astimezone(UTC)
        user_id, companion_id = divmod(relationship_id, MAX_COMPANIONS)
        spent = self._spent(user_id, now.date())
        read_at, since = spent.read_at, self._clock.monotonic()
        if since - read_at > _READ_S:
            rows = await self._database.rows("spent_tokens", [user_id], now.date())
            if spent.read_at == read_at:  # not read again meanwhile
                spent.stored = Counter({row["companion_id"]: row["tokens"] for row in rows})
                spent.read_at = since
        known = spent.stored + spent.unstored
        tokens = known[companion_id] if of_companion else known.total()
        if tokens >= (limit if is_reply else limit * REPLIES_ONLY_SHARE):
            raise reached(limit, now)

    def add(self, relationship_id: int, tokens: int) -> None:
        """Count tokens that a user with a limit has spent."""
        user_id, companion_id = divmod(relationship_id, MAX_COMPANIONS)
        day = self._clock.now().astimezone(UTC).date()
        spent = self._changed[user_id, day] = self._spent(user_id, day)
        spent.unstored[companion_id] += tokens

    async def store(self) -> None:
        """Store what was counted, and read what other processes stored for the same users.

        Raises:
            StorageUnavailable: it is stored next time.
        """
        day = self._clock.now().astimezone(UTC).date()
        users = {
            user_id: (spent, spent.unstored.copy())
            for (user_id, of_day), spent in self._changed.items()
            if of_day == day  # those of yesterday no longer matter
        }
        if not users:
            return
        counted = [
            (user_id, companion_id, tokens)
            for user_id, (_, unstored) in users.items()
            for companion_id, tokens in unstored.items()
        ]
        columns = [list(column) for column in zip(*counted, strict=True)]
        await self._database.execute("add_spent_tokens", day, *columns)
        since = self._clock.monotonic()
        for spent, unstored in users.values():
            spent.unstored -= unstored
            spent.stored += unstored
        self._changed = {
            (user_id, day): spent for user_id, (spent, _) in users.items() if spent.unstored
        }
        rows = await self._database.rows("spent_tokens", list(users), day)
        for spent, _ in users.values():
            spent.stored, spent.read_at = Counter(), since
        for row in rows:
            users[row["user_id"]][0].stored[row["companion_id"]] = row["tokens"]

    def _spent(self, user_id: int, day: date) -> _SpentTokens:
        return self._users.setdefault((user_id, day), _SpentTokens())


def reached(limit: int, now: datetime) -> TokenLimitReached:
    """Return the error for a limit that was reached at `now`, in UTC. Pure."""
    midnight = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
    return TokenLimitReached(
        f"This player has used the {limit} tokens of language models of a day; send the message "
        f"again from {midnight:%Y-%m-%dT%H:%MZ}.",
        retry_after_s=(midnight - now).total_seconds(),
    )


_TURN_BYTES = 2048  # of a turn's vectors, words and indexes, besides its text
_MEASURED_S = 600.0  # for which what was measured is only added to
_FULL_S = 1.0  # likewise, of a user who has no room left and may have forgotten something
_MAX_USERS = 100_000  # whose sizes are known; others are measured again

_log = structlog.get_logger("foremind.storage")


@dataclass(slots=True)
class _UsedSpace:
    bytes: int = 0
    measured_at: float = float("-inf")
    measuring: "asyncio.Task[None] | None" = None


class UserQuota:
    """Counts what users store in this process, and measures it in the database now and then.

    Nobody waits for a measurement but a user who seems to have no room left.
    """

    def __init__(self, database: Database, limit_bytes: int, clock: Clock) -> None:
        self._database = database
        self._limit = limit_bytes
        self._clock = clock
        self._users: LRUCache[int, _UsedSpace] = LRUCache(_MAX_USERS)

    async def admit(self, user_id: int | None, text_bytes: int, turns: int = 1) -> None:
        """Count what is about to be stored.

        Args:
            user_id: the user's key in the database; None for one who has nothing there yet.
            turns: how many turns are added.

        Raises:
            StorageFull: there is no room for it.
            StorageUnavailable: there seems to be none, and the database did not answer.
        """
        size = text_bytes + turns * _TURN_BYTES
        stored = _UsedSpace()
        if user_id is not None:
            stored = self._users.setdefault(user_id, stored)
        now = self._clock.monotonic()
        full = stored.bytes + size > self._limit
        if user_id is not None and now - stored.measured_at > (_FULL_S if full else _MEASURED_S):
            if stored.measuring is None or stored.measuring.done():
                stored.measured_at = now
                stored.measuring = begin(
                    self._measure(user_id, stored, stored.bytes), "measure-user"
                )
            if full:
                await asyncio.wait({stored.measuring})
                full = stored.bytes + size > self._limit
        if full:
            raise StorageFull(
                f"text: expected room for {size} bytes more, but this user has stored "
                f"{stored.bytes} of {self._limit} bytes; forgetting makes room",
                param="text",
            )
        stored.bytes += size

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop(*(stored.measuring for stored in self._users.values() if stored.measuring))

    async def _measure(self, user_id: int, stored: _UsedSpace, counted: int) -> None:
        """Measure what a user has stored; what is counted meanwhile is added."""
        total = 0
        try:
            for row in await self._database.rows("relationship_ids_of_user", user_id):
                scoped = self._database.for_relationship(row["id"])
                turns = await scoped.row("stored_turns", row["id"])
                assert turns is not None
                total += turns["bytes"] + turns["turns"] * _TURN_BYTES
        except StorageUnavailable as error:  # what was counted here goes on to count
            _log.warning("user.not_measured", reason=error.code)
            return
        stored.bytes += total - counted
