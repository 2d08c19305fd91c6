"""What a user may store has a limit, which is named when it is reached; nothing is lost."""

import asyncio
from datetime import timedelta

import pytest

from foremind.app.core import Core
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import StorageFull
from foremind.domain.turn import OpenedSession
from foremind.storage.quotas import UserQuota
from foremind.storage.turn_store import TurnStore
from foremind_eval.doubles.manual_clock import ManualClock
from tests.conftest import eventually, owner_of

LIMIT = 100_000
TEXT = "x" * 20_000  # counts whole, however little the database makes of it


async def opened(built: Core, turns: TurnStore, slug: str) -> OpenedSession:
    """Open a session of Ana with a companion."""
    companion = await built.stores.companions.put(CompanionFile(slug, slug.title(), "A sailor."))
    now = built.runtime.clock.now()
    return await turns.open_session("ana", "Ana", companion.id, now, "UTC", timedelta(hours=1))


async def test_a_message_beyond_the_limit_is_refused_by_name_until_something_is_forgotten(
    built: Core,
) -> None:
    """Over all companions of a user; what other processes stored counts, too."""
    clock, now = ManualClock(), built.runtime.clock.now()
    async with UserQuota(built.database, LIMIT, clock) as quota:
        turns = TurnStore(built.database, quota=quota)
        elsewhere = TurnStore(built.database)
        wren, saffi = await opened(built, turns, "wren"), await opened(built, turns, "saffi")
        for number, session in enumerate((wren, saffi, wren)):
            await elsewhere.commit_message(session, f"m{number}", f"{number}{TEXT}", now)
        await turns.commit_message(saffi, "m3", f"3{TEXT}", now)
        await eventually(
            lambda: not any(t.get_name() == "measure-user" for t in asyncio.all_tasks())
        )
        await clock.advance(2.0)
        with pytest.raises(
            StorageFull, match=r"this user has stored \d+ of 100000 bytes"
        ) as refused:
            await turns.commit_message(wren, "m4", f"4{TEXT}", now)
        assert refused.value.param == "text"
        owner = owner_of(built)
        assert await owner.fetchval("SELECT count(*) FROM turns WHERE message_id = 'm4'") == 0
        await owner.execute("UPDATE turns SET content = '' WHERE message_id IN ('m0', 'm1')")
        await clock.advance(2.0)
        await turns.commit_message(wren, "m4", f"4{TEXT}", now)


async def test_a_new_user_has_the_same_limit(built: Core) -> None:
    """Of whom nothing is stored yet, such as one whose relationship is imported."""
    async with UserQuota(built.database, LIMIT, ManualClock()) as quota:
        await quota.admit(None, 60_000)
        await quota.admit(None, 60_000)
        with pytest.raises(StorageFull):
            await quota.admit(None, LIMIT, 10)


async def test_one_users_limit_is_not_anothers(built: Core) -> None:
    """And a user with room waits for no measurement."""
    async with UserQuota(built.database, LIMIT, ManualClock()) as quota:
        with pytest.raises(StorageFull):
            await quota.admit(1, LIMIT)
        await quota.admit(1, 60_000)
        await quota.admit(2, 60_000)
        with pytest.raises(StorageFull):
            await quota.admit(1, 60_000)
