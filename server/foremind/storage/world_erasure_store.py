"""Stores what worlds forget: events in every mind, players, and timelines that were left."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from foremind.domain.announcements import WorldChanged
from foremind.domain.relationship import companion_id_of, relationship_id_of, user_id_of
from foremind.domain.user import ExportedEvent
from foremind.domain.world import EventChoice, log_of, player_account
from foremind.storage.database import Count, Database, DatabaseConnection
from foremind.storage.world_events import EventKey, World, act_for, columns_of

_MAX_FORGOTTEN = 200  # events that one transaction looks for
_MAX_REMOVED = 1000  # of what a player witnessed or happened, at a time


@dataclass(frozen=True, slots=True)
class ForgottenEvent:
    """An event that is forgotten, with the relationships that may remember it."""

    key: EventKey
    id: str
    witnesses: Sequence[int]
    was_forgotten: bool


class PlayerAccount(NamedTuple):
    """The account of a player in a timeline, which a world began; no client can name `name`."""

    id: int
    timeline: int
    world: str
    name: str


class WorldErasureStore:
    """Takes what is forgotten out of worlds, and finds the minds that remember it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def timelines_of(self, world: World) -> list[int]:
        """Return the timelines of a world's past, of its saves, and those that were undone."""
        rows = await self._database.rows("timelines_of_world", world.name)
        return sorted({row["id"] for row in rows} | set(world.lineage))

    async def named(self, timelines: Sequence[int], ids: Sequence[str]) -> list[EventKey]:
        """Return events of some timelines by their ids, also what is forgotten."""
        async with self._database.transaction() as connection:
            await act_for(connection, timelines)
            rows = await connection.rows("events_named", timelines, ids)
        return [EventKey(row["timeline_id"], row["seq"]) for row in rows]

    async def chosen(
        self, timeline: int, choice: EventChoice, last: int
    ) -> AsyncIterator[Sequence[EventKey]]:
        """Yield batches of the chosen events of a timeline, up to the one with a number."""
        after = 0
        while after < last:
            async with self._database.transaction() as connection:
                await act_for(connection, [timeline])
                rows = await connection.rows(
                    "events_between",
                    timeline,
                    after,
                    last,
                    choice.since,
                    choice.until,
                    choice.player,
                    _MAX_FORGOTTEN,
                )
            if not rows:
                return
            after = rows[-1]["seq"]
            yield [EventKey(timeline, row["seq"]) for row in rows]

    async def last_events(self, timelines: Sequence[int]) -> dict[int, int]:
        """Return the number of the last event of each of some timelines; 0 if there is none."""
        async with self._database.transaction() as connection:
            return await _last_events(connection, timelines)

    async def forget(
        self, named: Sequence[EventKey], now: datetime, count: Count | None = None
    ) -> list[ForgottenEvent]:
        """Delete what happened in events, and in all that pass them on or were made of them.

        Nobody will perceive them; minds that have are to forget them until `end_forgetting`.

        Args:
            count: stores how many events were forgotten, and by how many minds of each character.
        """
        async with self._database.transaction() as connection:
            # Nothing is made of them meanwhile, and of what was thought of by now nothing happens.
            await _lock_family(connection, {key.timeline for key in named})
            rows = await connection.rows("with_made_of", *columns_of(named))
            found = [EventKey(row["timeline_id"], row["seq"]) for row in rows]
            await act_for(connection, {key.timeline for key in found})
            rows = await connection.rows("lock_to_forget", *columns_of(found))
            gone = [_forgotten(row) for row in rows]
            for timeline, events in _by_timeline(gone).items():
                await connection.execute(
                    "forget_world_events",
                    timeline,
                    [event.key.seq for event in events],
                    sorted({known for event in events for known in event.witnesses}),
                    now,
                )
            if count is not None:
                minds = await _slugs_of_minds(connection, gone)
                fresh = sum(not event.was_forgotten for event in gone)
                await count(connection, {"events": fresh} | {f"mind {slug}": 1 for slug in minds})
        return gone

    async def unfinished_forgetting(self) -> list[ForgottenEvent]:
        """Return some forgotten events that minds may still remember."""
        rows = await self._database.rows("events_to_forget", _MAX_FORGOTTEN)
        if not rows:
            return []
        keys = [EventKey(row["timeline_id"], row["seq"]) for row in rows]
        async with self._database.transaction() as connection:
            await act_for(connection, {key.timeline for key in keys})
            rows = await connection.rows("lock_to_forget", *columns_of(keys))
        return [_forgotten(row) for row in rows]

    async def minds_remembering(self, events: Sequence[ForgottenEvent]) -> dict[int, list[str]]:
        """Return the minds that may have perceived events, with the ids of these.

        A mind has one relationship in each timeline: those whose past includes an event are meant.
        """
        rows = await self._database.rows(
            "timelines_of_family", sorted({event.key.timeline for event in events})
        )
        pasts = {row["id"]: {row["id"], *row["ancestors"]} for row in rows}
        ids: dict[tuple[int, int], list[str]] = {}
        for event in events:
            for witness in event.witnesses:
                if companion_id_of(witness):
                    ids.setdefault((event.key.timeline, witness), []).append(event.id)
        players = await self._players({user_id_of(witness) for _, witness in ids})
        named = [
            player_account(timeline, player)
            for player in set(players.values())
            for timeline in pasts
        ]
        rows = await self._database.rows("accounts", named)
        accounts = {row["external_id"]: row["id"] for row in rows}
        remembering: dict[int, list[str]] = {}
        for (begun, witness), known in ids.items():
            account, companion = user_id_of(witness), companion_id_of(witness)
            for timeline in (later for later, past in pasts.items() if begun in past):
                own: int | None = timeline
                if account != begun:
                    player = players.get(account)
                    name = player is not None and player_account(timeline, player)
                    own = accounts.get(name) if name else None
                if own is not None:
                    mind = relationship_id_of(own, companion)
                    remembering.setdefault(mind, []).extend(known)
        rows = await self._database.rows("existing_minds", list(remembering))
        existing = {row["id"] for row in rows}
        return {mind: known for mind, known in remembering.items() if mind in existing}

    async def end_forgetting(self, events: Sequence[ForgottenEvent]) -> None:
        """Record that no mind remembers forgotten events."""
        async with self._database.transaction() as connection:
            await act_for(connection, {event.key.timeline for event in events})
            for timeline, gone in _by_timeline(events).items():
                await connection.execute(
                    "end_forgetting", timeline, [event.key.seq for event in gone]
                )

    async def slugs_of_minds(self, events: Sequence[ForgottenEvent]) -> set[str]:
        """Return the slugs of the characters whose minds witnessed events."""
        return await _slugs_of_minds(self._database, events)

    async def accounts_of_player(self, player: str) -> list[PlayerAccount]:
        """Return the accounts of a player in all timelines of all worlds."""
        rows = await self._database.rows("accounts_of_player", player)
        return [
            PlayerAccount(
                row["id"],
                row["timeline_id"],
                row["world"],
                player_account(row["timeline_id"], player),
            )
            for row in rows
        ]

    async def witnessed_by(self, account: PlayerAccount) -> list[ExportedEvent]:
        """Return what a player witnessed, the oldest first."""
        log, events, after = log_of(account.id), list[ExportedEvent](), 0
        data = self._database.for_relationship(log)
        while rows := await data.rows("witnessed_by_player", log, after, _MAX_REMOVED):
            after = rows[-1]["seq"]
            events += [
                ExportedEvent(
                    row["id"],
                    row["type"],
                    row["actor"],
                    row["addressed"],
                    row["text"],
                    row["how"],
                    row["place"] or row["scene"],
                    row["happened_at"],
                )
                for row in rows
            ]
        return events

    async def relationships_of(self, account: PlayerAccount) -> list[int]:
        """Return the minds that characters have of a player."""
        rows = await self._database.rows("relationship_ids_of_user", account.id)
        return [row["id"] for row in rows]

    async def delete_account(self, account: PlayerAccount) -> bool:
        """Delete a player's account with its log; False if minds are of it."""
        while True:
            async with self._database.transaction() as connection:
                # So that nothing is witnessed meanwhile, and no mind begins.
                await connection.row("lock_world", account.world)
                await connection.row("lock_user", account.id)
                if await connection.row("relationship_ids_of_user", account.id) is not None:
                    return False
                await act_for(connection, [account.timeline])
                rows = await connection.rows(
                    "lock_witnessed_by", account.id, account.timeline, _MAX_REMOVED
                )
                if not rows:
                    await connection.execute("delete_user", account.id)
                    return True
                await connection.execute(
                    "remove_witnesses",
                    account.timeline,
                    [row["seq"] for row in rows],
                    sorted({row["relationship_id"] for row in rows}),
                )

    async def _players(self, accounts: Collection[int]) -> dict[int, str]:
        """Return the players whose accounts some are, by account."""
        rows = await self._database.rows("names_of_accounts", list(accounts))
        named = {row["id"]: row["external_id"].partition("/") for row in rows}
        return {account: player for account, (_, divided, player) in named.items() if divided}

    async def abandoned_timeline(self) -> int | None:
        """Return a timeline that nothing goes on from, the latest first; None if there is none.

        Nothing ever will: a world goes on from its present or from a save.
        """
        timeline: int | None = await self._database.value("abandoned_timeline")
        return timeline

    async def minds_of_timeline(self, timeline: int) -> list[int]:
        """Return the minds of a timeline."""
        async with self._database.transaction() as connection:
            return await _minds_of_accounts(connection, await _accounts_of(connection, timeline))

    async def delete_timeline(self, timeline: int) -> bool:
        """Delete an abandoned timeline with what happened in it; False if it still has minds."""
        while True:
            async with self._database.transaction() as connection:
                await act_for(connection, [timeline])
                rows = await connection.rows("lock_first_events", timeline, _MAX_REMOVED)
                if not rows:
                    break
                await connection.execute(
                    "delete_world_events",
                    timeline,
                    [row["seq"] for row in rows],
                    sorted({known for row in rows for known in row["witnesses"]}),
                )
        async with self._database.transaction() as connection:
            accounts = await _accounts_of(connection, timeline)
            if await _minds_of_accounts(connection, accounts):
                return False
            await connection.execute("delete_sources_of_timeline", timeline)
            await connection.execute("delete_timeline", timeline)
            await connection.execute("delete_accounts", accounts)
        return True


async def leave_worlds(connection: DatabaseConnection, player: str, alias: str) -> dict[int, int]:
    """Remove a player from all scenes, and call the player's accounts otherwise.

    Returns:
        The number of the last event of each timeline in which the player was.
    """
    rows = await connection.rows("accounts_of_player", player)
    if not rows:
        return {}
    await _lock_family(connection, [row["timeline_id"] for row in rows])
    rows = await connection.rows("accounts_of_player", player)
    timelines = [row["timeline_id"] for row in rows]
    later = await connection.rows("timelines_of_family", timelines)
    await connection.execute("remove_from_scenes", [row["id"] for row in later], player)
    renamed = [player_account(timeline, alias) for timeline in timelines]
    await connection.execute("rename_accounts", [row["id"] for row in rows], renamed)
    return await _last_events(connection, timelines)


async def _last_events(connection: DatabaseConnection, timelines: Sequence[int]) -> dict[int, int]:
    await act_for(connection, timelines)
    rows = await connection.rows("last_events", timelines)
    return {row["timeline_id"]: row["seq"] for row in rows}


async def _lock_family(connection: DatabaseConnection, timelines: Iterable[int]) -> None:
    """Lock all worlds whose present may know what happened in timelines, and count an erasure."""
    locked, found = list[str](), [""]
    while found != locked:  # one that has begun meanwhile is found the next time
        locked = found
        rows = await connection.rows("lock_family", list(timelines))
        found = [row["name"] for row in rows]
    await connection.execute("count_erasure", locked)
    for name in locked:
        connection.announce(WorldChanged(name))


async def _slugs_of_minds(
    database: Database | DatabaseConnection, events: Iterable[ForgottenEvent]
) -> set[str]:
    companions = {companion_id_of(known) for event in events for known in event.witnesses}
    rows = await database.rows("slugs_of_companions", sorted(companions))
    return {row["slug"] for row in rows}


def _forgotten(row: Any) -> ForgottenEvent:
    key = EventKey(row["timeline_id"], row["seq"])
    return ForgottenEvent(key, row["id"], row["witnesses"], row["was_forgotten"])


def _by_timeline(events: Iterable[ForgottenEvent]) -> dict[int, list[ForgottenEvent]]:
    found: dict[int, list[ForgottenEvent]] = {}
    for event in events:
        found.setdefault(event.key.timeline, []).append(event)
    return found


async def _accounts_of(connection: DatabaseConnection, timeline: int) -> list[int]:
    return [row["id"] for row in await connection.rows("lock_accounts_of_timeline", timeline)]


async def _minds_of_accounts(connection: DatabaseConnection, accounts: Sequence[int]) -> list[int]:
    return [row["id"] for row in await connection.rows("minds_of_accounts", accounts)]
