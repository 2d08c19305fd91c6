"""Erasing a user is one act: cut off at whichever statement, it is finished by whoever finds it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import msgspec
import numpy as np
import pytest

import foremind.memory.erasure.eraser
from foremind.app.core import Core, build_eraser
from foremind.app.server import serving
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import NotFound, StorageUnavailable
from foremind.domain.relationship import relationship_id_of
from foremind.domain.settings.settings import CompanionSettings, Secret, Settings
from foremind.domain.world import NewEvent, Scene
from foremind.memory.erasure.eraser import UserEraser
from foremind.storage.database import Database
from foremind.storage.mind_store import MindStore
from foremind.storage.user_store import UserStore
from foremind.storage.world_erasure_store import WorldErasureStore
from foremind.worlds.forgetting import WorldEraser
from tests.conftest import PATIENCE, CommitsOnly, eventually_async, owner_of
from tests.faults.conftest import full
from tests.faults.proxy import FaultProxy, fault_proxy
from tests.faults.test_between_server_and_database import address_of, over_tcp, own_postgres, ready

_COMPANIONS = ("mara", "wren")
_MESSAGES = 1  # with each companion
# The two events are perceived by the mind that mara has in the world, and by wren's of the player.
_STORED = {
    "relationships": 3,
    "sessions": 2,
    "turns": 2 * _MESSAGES + 2,
    "memories": 2 * _MESSAGES,
    "records": 2,
    "audit": 2,
    "events": 2,
}
_WHOLE = _STORED | {"minds": ("mara", "wren")}
_FILL_LOG = "SELECT pg_logical_emit_message(false, '', repeat('x', 4000000))"
# What is left of a user in each table, by the id in the database and that which clients use.
_ROWS = """
    SELECT (SELECT count(*) FROM users WHERE id = $1)
        + (SELECT count(*) FROM relationships WHERE user_id = $1)
        + (SELECT count(*) FROM turns WHERE user_id = $1)
        + (SELECT count(*) FROM sessions WHERE relationship_id / 4194304 = $1)
        + (SELECT count(*) FROM memories WHERE relationship_id / 4194304 = $1)
        + (SELECT count(*) FROM records WHERE relationship_id / 4194304 = $1)
        + (SELECT count(*) FROM audit WHERE relationship_id / 4194304 = $1)
        + (SELECT count(*) FROM users
            WHERE external_id LIKE E'\n%/' || $2 OR external_id LIKE E'\n%-' || $1::bigint)
        + (SELECT count(*) FROM world_events WHERE id LIKE $2 || '-%' AND content <> '')
        + (SELECT count(*) FROM turns WHERE event_id LIKE $2 || '-%' AND content <> '')
        + (SELECT count(*) FROM witnesses
            WHERE relationship_id / 4194304 NOT IN (SELECT id FROM users))
        + (SELECT count(*) FROM events_to_forget)
        + (SELECT count(*) FROM scenes WHERE $2 = ANY (players))
"""


@asynccontextmanager
async def erasing(core: Core) -> AsyncIterator[tuple[FaultProxy, UserStore, UserEraser]]:
    """Erase users through a proxy before the database."""
    async with fault_proxy(address_of(core.database_url)) as proxy:
        url = over_tcp(core.database_url, proxy.port)
        async with Database.connect(
            url, size=1, timeout_s=PATIENCE, publisher=CommitsOnly()
        ) as database:
            eraser: Any = build_eraser(core)
            eraser._database = database
            users = UserStore(database)
            stores = replace(
                core.stores,
                world_erasures=WorldErasureStore(database),
                minds=MindStore(database, ""),
            )
            worlds = WorldEraser(stores, eraser, core.runtime.clock)
            yield proxy, users, UserEraser(users, eraser, worlds, core.runtime.clock)


async def reconnected(users: UserStore) -> bool:
    """Return whether the database answers over a connection that is not cut."""
    with suppress(StorageUnavailable):
        return await users.get("nobody") is None
    return False


async def seed(core: Core, user: str) -> int:
    """Have a user say something to two companions; return the user's id in the database."""
    owner, now = owner_of(core), core.runtime.clock.now()
    for companion in _COMPANIONS:
        known = await core.stores.companions.put(CompanionFile(companion, companion, "p"))
        session = await core.stores.turns.open_session(user, user.title(), known.id, now)
        relationship = session.relationship_id
        await owner.execute(
            "INSERT INTO turns (relationship_id, session_id, user_id, speaker, message_id, status, "
            "content, created_at) SELECT $1, $2, $1::bigint / 4194304, 'user', $3 || n, "
            "'completed', 'said', now() FROM generate_series(1, $4::integer) AS n",
            relationship, session.session_id, f"{user}-{companion}", _MESSAGES,
        )  # fmt: skip
        await owner.execute(
            "INSERT INTO memories (relationship_id, created_at, source_turn_id, significance, "
            "term_count, memory_type, speaker, embedding, content, version, words) "
            "SELECT $1, now(), id, 0.5, 1, 'conversation', 'user', '[1]', 'said', 1, '' "
            "FROM turns WHERE relationship_id = $1",
            relationship,
        )
        await owner.execute(
            "INSERT INTO records (relationship_id, layer, content, made_by, created_at, updated_at)"
            " VALUES ($1, 'topics', 'said', 'rules', now(), now())",
            relationship,
        )
        await owner.execute(
            "INSERT INTO audit (relationship_id, actor, action, subject, happened_at) "
            "VALUES ($1, $2, 'read', '', now())",
            relationship, user,
        )  # fmt: skip
    await play(core, user)
    return int(await owner.fetchval("SELECT id FROM users WHERE external_id = $1", user))


async def play(core: Core, user: str) -> None:
    """Have two minds of a world perceive what a user does there, and one pass it on."""
    worlds, now, world = core.stores.worlds, core.runtime.clock.now(), f"world of {user}"
    settings = CompanionSettings(mind="world")
    shared = await core.stores.companions.put(
        CompanionFile(_COMPANIONS[0], "Mara", "p", settings=settings)
    )
    own = await core.stores.companions.find(_COMPANIONS[1])
    begun, _ = await worlds.put(world, now)
    await worlds.put_scene(world, Scene("inn", players=[user, "bo"], minds=_COMPANIONS))
    await worlds.report(
        world,
        [
            NewEvent(f"{user}-1", "said", "said", "inn", user),
            NewEvent(f"{user}-2", "said", "said again", "inn", "mara", retells=f"{user}-1"),
        ],
        now,
    )
    account = await worlds.account(begun, user)
    assert account is not None
    for mind in (
        relationship_id_of(begun.timeline, shared.id),
        relationship_id_of(account, own.id),
    ):
        await core.stores.minds.begin_mind(mind, None)
        witnessed = await core.stores.minds.witnessed([mind], 0, 10)
        vectors = [np.ones(2, np.float32)] * len(witnessed)
        await core.stores.minds.perceive(mind, witnessed, vectors, lambda seen: seen.text, now)


async def left_of(core: Core, number: int, user: str) -> int:
    """Return how many rows a user has."""
    return int(await owner_of(core).fetchval(_ROWS, number, user))


async def last_receipt(core: Core) -> tuple[object, dict[str, int]]:
    """Return whose the last recorded erasure is, and how much it has erased."""
    row = await owner_of(core).fetchrow(
        "SELECT user_id, receipt FROM erased_users ORDER BY id DESC LIMIT 1"
    )
    return row["user_id"], json.loads(row["receipt"])


async def test_an_erasure_that_is_cut_off_anywhere_is_finished(
    built: Core, monkeypatch: pytest.MonkeyPatch, effort: int
) -> None:
    """With the receipt of an undisturbed one; or nothing has happened at all.

    The connection is cut at requests that the database is sent, so that the server could have died
    there: at each third one, and at all of them with an effort of 3.
    """
    monkeypatch.setattr(foremind.memory.erasure.eraser, "_BATCH_SIZE", 1)
    async with erasing(built) as (proxy, users, eraser):
        cut, done = 0, False
        untouched = interrupted = 0
        while not done:
            user = f"user{cut}"
            number = await seed(built, user)
            before = await left_of(built, number, user)
            proxy.cut()  # every round begins with a connection that has prepared nothing
            await eventually_async(lambda: reconnected(users))
            proxy.faults.pieces_left = cut
            try:
                receipt = await eraser.erase(user, by_operator=False)
                done = True
                assert vars_of(receipt) == _WHOLE
            except StorageUnavailable:
                pass
            proxy.faults.pieces_left = None
            await eventually_async(lambda: reconnected(users))
            if await built.stores.users.get(user) is not None:
                assert await left_of(built, number, user) == before
                untouched += 1
            elif not done:
                interrupted += 1
                if cut % 2:  # by the server that is started next, or by the same request
                    await eraser.finish_interrupted()
                else:
                    try:
                        receipt = await eraser.erase(user, by_operator=False)
                        assert vars_of(receipt) == _WHOLE
                    except NotFound:  # only the answer was lost
                        pass
            if await built.stores.users.get(user) is None:
                assert await left_of(built, number, user) == 0, cut
                whose, counts = await last_receipt(built)
                minds = {kind for kind in counts if kind.startswith("mind ")}
                stored = {kind: counts[kind] for kind in counts.keys() - minds}
                assert (whose, stored) == (None, _STORED), cut
                assert minds == {"mind mara", "mind wren"}
            cut += max(1, 3 // effort)
        assert untouched > 5
        assert interrupted > 20


async def test_an_erasure_for_which_the_disk_is_full_is_finished(
    settings: Settings, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is half done once there is space again, and the receipt is that of the whole."""
    monkeypatch.setitem(globals(), "_MESSAGES", 600)
    monkeypatch.setattr(foremind.memory.erasure.eraser, "_BATCH_SIZE", 10)
    async with own_postgres(small_disk) as url:
        changed = msgspec.structs.replace(settings, database_url=Secret(url))
        async with (
            serving(changed) as (app, port),
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http,
        ):
            user = await seed(app.core, "ana")
            before = await left_of(app.core, user, "ana")
            owner = owner_of(app.core)

            async def erase() -> httpx2.Response:
                return await http.delete("/v1/users/ana", params={"user": "ana"})

            erasing = asyncio.create_task(erase())

            async def is_erasing() -> bool:
                return await left_of(app.core, user, "ana") < before

            await eventually_async(is_erasing)
            with full(small_disk):
                with suppress(asyncpg.PostgresError, OSError):
                    while True:  # until no file of the log has room either
                        await owner.fetchval(_FILL_LOG)
                interrupted = await erasing
            assert interrupted.status_code == 503, interrupted.text
            assert interrupted.json()["error"]["retryable"]
            await eventually_async(lambda: ready(port))
            again = await erase()
            assert again.status_code in {200, 404}, again.text  # 404: somebody has finished it
            assert await left_of(app.core, user, "ana") == 0
            whose, receipt = await last_receipt(app.core)
            assert (whose, receipt["turns"], receipt["memories"]) == (None, 1_202, 1_200)


def vars_of(receipt: Any) -> dict[str, Any]:
    """Return the fields of a receipt."""
    return {name: getattr(receipt, name) for name in receipt.__struct_fields__}
