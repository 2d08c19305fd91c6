"""Isolation: nothing of one relationship is ever visible in another."""

import asyncio
import json
import random
import re
import time
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg
import httpx2
import msgspec
import pytest

from foremind.app.core import Core, core
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import DatabaseUnsuitable
from foremind.domain.relationship import relationship_id_of
from foremind.domain.settings.settings import Secret, Settings
from foremind.storage.database import Database
from foremind.storage.named_queries import as_one_read, load_queries
from foremind.storage.world_events import act_for
from foremind_client import Client
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.hosting import hosting
from tests.conftest import (
    PATIENCE,
    ROOT,
    CommitsOnly,
    RunningServer,
    StartServer,
    on_citus,
    owner_of,
)  # fmt: skip
from tests.integration.test_query_plans import reads_of_relationship
from tests.unit.auth.test_access_tokens import SECRET, token

OPERATIONS = 3_000  # with an effort of 1
USERS, COMPANIONS = ("ana", "bo", "cy", "dee", "eli"), ("wren", "mara")
WORKERS = 10  # one for each relationship
PROTECTED = (
    "turns", "alternative_replies", "memories", "memory_terms", "memory_sources", "memory_facts",
    "memory_changes",
    "records", "record_sources", "record_revisions", "audit",
    "session_states", "reply_prompts",
)  # fmt: skip
# What happened in worlds, which belongs to those who witnessed it.
OF_WITNESSES = ("world_events", "witnesses")
# Every text of a relationship contains its mark.
MARK = re.compile(r"qz[a-z]+zq", re.IGNORECASE)


def mark_of(user: str, companion: str) -> str:
    """Return the word that occurs in this relationship only."""
    return f"qz{user}{companion}zq"


@dataclass
class IsolatedPlayer:
    """A client of one user with one companion, which checks everything it receives."""

    server: RunningServer
    http: httpx2.AsyncClient
    user: str
    companion: str
    random: random.Random
    done: dict[str, int] = field(default_factory=dict)
    client: Client | None = None
    session: str = ""
    relationship: int = 0
    seq: int = 0
    sent: int = 0
    exported: str = ""

    @property
    def mark(self) -> str:
        """Return the word that occurs in this relationship only."""
        return mark_of(self.user, self.companion)

    @property
    def signed(self) -> str:
        """A token of this user."""
        return token(
            sub=self.user,
            name=f"{self.user.title()} {mark_of(self.user, '')}",
            exp=time.time() + 3600,
        )

    def check(self, text: str, source: str) -> None:
        """Assert that a text contains marks of no other relationship."""
        foreign = {mark.lower() for mark in MARK.findall(text)}
        foreign -= {self.mark, mark_of(self.user, "")}
        assert not foreign, f"{self.user} with {self.companion} was shown {foreign} by {source}"

    async def connect(self) -> None:
        """Open or resume the session."""
        if self.client is not None:
            await self.client.close()
        self.client = await self.server.connect(token=self.signed)
        resume = (self.session, self.seq) if self.session else None
        opened = await self.client.open_session(self.companion, resume=resume)
        assert opened["type"] == "session.opened", opened
        self.session, self.relationship = opened["session_id"], int(opened["relationship_id"])
        self.seq = opened["seq"]
        self.check(json.dumps(opened), "session.opened")

    async def expect(self, *types: str) -> None:
        """Read events until one of these types."""
        assert self.client is not None
        while True:
            event = await self.client.next_event()
            self.seq = event["seq"]
            self.check(json.dumps(event), event["type"])
            assert event["type"] != "error", event
            if event["type"] in types:
                return

    async def request(self, method: str, path: str, **options: object) -> httpx2.Response:
        """Send a request as this user."""
        headers = {"authorization": f"Bearer {self.signed}"}
        response = await self.http.request(method, path, headers=headers, **options)  # type: ignore[arg-type]
        self.check(response.text, path)
        return response

    async def act(self, strangers: list["IsolatedPlayer"]) -> None:
        """Perform a random operation, and check everything that it returns."""
        action = self.random.choices(
            ("draft", "send", "read", "spy", "change", "forget", "reconnect"),
            (40, 14, 26, 14, 3, 1, 2),
        )[0]
        self.done[action] = self.done.get(action, 0) + 1
        assert self.client is not None
        own = f"/v1/relationships/{self.relationship}"
        match action:
            case "draft":
                subject = self.random.choice(("harbour", "garden", "brother", "secret", "map"))
                await self.client.draft(f"What of my {subject} {self.random.random()}?")
                await self.expect("context.ready")
            case "send":
                self.sent += 1
                subject = self.random.choice(("harbour", "garden", "brother", "secret", "map"))
                await self.client.send(f"I promise, my {subject} is {self.mark} {self.sent}")
                await self.expect("response.done")
            case "read":
                page = self.random.choice(
                    ("memories", "records", "audit", "sessions", "export", "config",
                     f"context?draft=Where is my {self.random.choice(('map', 'garden'))}?")
                )  # fmt: skip
                response = await self.request("GET", f"{own}/{page}")
                assert response.status_code == 200, response.text
                if page == "export":
                    self.exported = response.text
            case "spy":
                other = self.random.choice(strangers)
                path = f"/v1/relationships/{other.relationship}/"
                page = self.random.choice(("memories", "records", "export", "context?draft=secret"))
                method = self.random.choice(("GET", "GET", "DELETE"))
                response = await self.request(
                    method, path + ("memories" if method == "DELETE" else page)
                )
                assert response.status_code == 404, response.text
            case "change":
                body = {"layer": "vault", "content": f"{self.mark} {self.random.random()}"}
                assert (await self.request("POST", f"{own}/records", json=body)).status_code == 201
            case "forget":
                about = {"about": f"{self.mark} {self.random.randrange(max(1, self.sent))}"}
                await self.request("DELETE", f"{own}/memories", params=about)
            case "reconnect":
                await self.connect()


@pytest.mark.timeout(3600)
async def test_random_operations_leak_nothing(start: StartServer, effort: int) -> None:
    """Over sockets, HTTP, caches, indexes, background work, exports, erasure and resuming."""
    script = Script(reply=lambda chat: ["Indeed: ", chat["messages"][-1]["content"][-60:]])
    async with (
        scripted_model(script) as model,
        httpx2.AsyncClient(
            timeout=PATIENCE,
            limits=httpx2.Limits(keepalive_expiry=1.0),  # before the server closes it
        ) as http,
    ):
        server = await start(
            auth_secret=SECRET, llm_url=model.url, working_tokens=300, pause_ms=50,
            index_bytes=400_000,  # too small for all relationships: indexes are evicted
            layers_bytes=20_000,
            drafts_per_s=10_000, sends_per_s=10_000, http_per_s=10_000,
        )  # fmt: skip
        await server.app.core.stores.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
        http.base_url = httpx2.URL(f"http://127.0.0.1:{server.port}")
        players = [
            IsolatedPlayer(server, http, user, companion, random.Random(f"{user}{companion}"))
            for user in USERS
            for companion in COMPANIONS
        ]
        assert len(players) == WORKERS
        for player in players:
            await player.connect()

        async def play(player: IsolatedPlayer) -> None:
            others = [other for other in players if other.user != player.user]
            for _ in range(effort * OPERATIONS // WORKERS):
                await player.act(others)

        async with asyncio.TaskGroup() as group:
            for player in players:
                group.create_task(play(player))
        for chat in script.requests:
            marks = {mark.lower() for mark in MARK.findall(json.dumps(chat))}
            assert len({mark for mark in marks if mark.endswith(("wrenzq", "marazq"))}) <= 1, marks
        done = {
            name: sum(player.done.get(name, 0) for player in players) for name in players[0].done
        }
        assert sum(done.values()) == effort * OPERATIONS
        assert min(done.values()) > 10, done
        assert all(player.exported for player in players)


async def test_no_row_is_visible_without_a_relationship(start: StartServer) -> None:
    """Row-level security isolates also queries that do not filter by relationship."""
    server = await start()
    for user in ("ana", "bo"):
        client = await server.session(user)
        await client.send(f"I promise that my name is {user}")
        await client.expect_all("response.done", "memory.stored")
    database = server.app.core.database
    owner = owner_of(server.app.core)
    ids = [row["id"] for row in await owner.fetch("SELECT id FROM relationships ORDER BY id")]
    for table in PROTECTED:
        count = f"SELECT count(*) FROM {table}"
        assert await database.pool.fetchval(count) == 0, table
        for relationship in ids:
            async with database.transaction(relationship) as connection:
                foreign = f"{count} WHERE relationship_id <> {relationship}"
                assert await connection.raw.fetchval(foreign) == 0, table
                own = await owner.fetchval(f"{count} WHERE relationship_id = {relationship}")
                assert await connection.raw.fetchval(count) == own, table
    for table in ("turns", "memories", "memory_terms"):
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") > 1, table


@pytest.mark.skipif(on_citus(), reason="Citus reads in transactions")
async def test_a_read_of_one_statement_sees_its_relationship_only(start: StartServer) -> None:
    """On connections that have planned nothing yet, and as a transaction of the relationship does.

    Afterwards the same connection sees nothing.
    """
    server = await start()
    database, owner = server.app.core.database, owner_of(server.app.core)
    for user in ("ana", "bo"):
        client = await server.session(user)
        for said in ("I promise that my harbour is Porto", "My brother Tom is a baker in Leeds."):
            await client.send(f"{said}, {user}")
            await client.expect_all("response.done", "memory.stored")
    returned: dict[str, int] = {}
    for turn in await owner.fetch("SELECT * FROM turns WHERE speaker = 'user' ORDER BY id"):
        relationship = turn["relationship_id"]
        await database.replace_connections()
        async with database.pool.acquire() as raw:
            for table in PROTECTED:
                every = f"SELECT relationship_id FROM {table}"
                own = await owner.fetch(f"{every} WHERE relationship_id = $1", relationship)
                query = as_one_read(f"{every} WHERE $1::bigint > 0")
                assert await raw.fetch(query, relationship) == own, table
                assert await raw.fetch(every) == [], table
            for name, query in reads_of_relationship().items():
                alone = await raw.prepare(as_one_read(query))
                types = [kind.name for kind in alone.get_parameters()][1:]
                for number in (0, turn["id"]):
                    args = (relationship, *(_argument(kind, number, turn) for kind in types))
                    rows = await alone.fetch(*args)
                    returned[name] = returned.get(name, 0) + len(rows)
                    async with database.transaction(relationship) as connection:
                        assert rows == await connection.raw.fetch(query, *args), name
            assert not await raw.fetchval("SELECT current_setting('foremind.relationship', true)")
    assert {"recent_turns", "session_turns", "memory_candidates", "similar_memories"} <= {
        name for name, rows in returned.items() if rows
    }
    assert sum(rows > 0 for rows in returned.values()) > len(returned) / 2, returned


def _argument(kind: str, number: int, turn: asyncpg.Record) -> object:
    """Return a value of a type, which concerns a turn where there is one to choose."""
    element = kind.removesuffix("[]")
    value = {
        "int8": number, "int4": 100, "int2": 100, "bool": False, "float4": 0.0, "float8": 0.0,
        "text": turn["message_id"], "uuid": turn["session_id"], "timestamptz": turn["created_at"],
        "halfvec": turn["embedding"],
    }[element]  # fmt: skip
    return value if kind == element else [value]


async def test_no_row_of_another_relationship_can_be_written(built: Core) -> None:
    """Neither inserted, moved, updated nor deleted."""
    companion = await built.stores.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
    now = built.runtime.clock.now()
    ana, bo = [
        await built.stores.turns.open_session(user, user, companion.id, now)
        for user in ("ana", "bo")
    ]
    turn = await built.stores.turns.commit_message(ana, "m1", "Mine alone", now)
    async with built.database.transaction(bo.relationship_id) as connection:
        for change in ("UPDATE turns SET content = 'x'", "DELETE FROM turns"):
            assert (await connection.raw.execute(change)).split()[-1] == "0"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with built.database.transaction(bo.relationship_id) as connection:
            row = (ana.relationship_id, ana.session_id, ana.user_id, None, "completed", "x", now)
            due = (1, now, timedelta())
            await connection.row("insert_reply", *row, None, None, True, True, *due, "x", 0, 1)
    # A sharded database moves no row from one relationship to another, whoever asks.
    refused = (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError)
    with pytest.raises(refused):
        async with built.database.transaction(ana.relationship_id) as connection:
            await connection.raw.execute(f"UPDATE turns SET relationship_id = {bo.relationship_id}")
    assert await owner_of(built).fetchval("SELECT content FROM turns") == "Mine alone"
    assert turn.id
    # A message sets its relationship for its own statement only.
    async with built.database.pool.acquire() as raw:
        assert not await raw.fetchval("SELECT current_setting('foremind.relationship', true)")


async def test_what_happened_is_visible_to_its_witnesses_alone(start: StartServer) -> None:
    """To a mind what it witnessed, in earlier timelines too, and to a world's host all of it."""
    server = await start()
    async with hosting(server, "mara", "jon") as host:
        await host.scene("tavern", players=["ana", "bo"], minds=["mara", "jon"])
        said = {"type": "said", "text": "The well is dry", "actor": "ana", "scene": "tavern"}
        whispered = said | {"to": "mara", "volume": "whisper"}
        await host.report({"id": "e1"} | said)
        await host.request("POST", "/saves", {"name": "dusk"})
        await host.report({"id": "e2"} | said, {"id": "e3"} | whispered)
    database, owner = server.app.core.database, owner_of(server.app.core)
    timelines = await owner.fetch("SELECT id FROM timelines ORDER BY begun_seq")
    first, second = [row["id"] for row in timelines]
    companions = await owner.fetch("SELECT slug, id FROM companions")
    numbers = {row["slug"]: row["id"] for row in companions}
    mara, jon = (relationship_id_of(second, numbers[slug]) for slug in ("mara", "jon"))
    earlier = relationship_id_of(first, numbers["mara"])
    ids = "SELECT array_agg(id ORDER BY seq) FROM world_events"
    seen = "SELECT array_agg(DISTINCT relationship_id) FROM witnesses"
    for query in (ids, seen):
        assert await database.pool.fetchval(query) is None
    async with database.transaction(mara) as connection:
        assert await connection.raw.fetchval(ids) == ["e2", "e3"]
        assert await connection.raw.fetchval(seen) == [mara]
        await connection.raw.execute(f"SET LOCAL foremind.past = '{{{earlier}}}'")
        assert await connection.raw.fetchval(ids) == ["e1", "e2", "e3"]
        assert await connection.raw.fetchval(seen) == sorted([earlier, mara])
    async with database.transaction(jon) as connection:
        assert await connection.raw.fetchval(ids) == ["e2"]
        for change in ("UPDATE world_events SET content = 'x'", "DELETE FROM witnesses"):
            changed = await connection.raw.execute(f"{change} WHERE seq = 3")
            assert changed.split()[-1] == "0"
    async with database.transaction() as connection:
        await act_for(connection, [first])
        assert await connection.raw.fetchval(ids) == ["e1"]
    for table, row in (
        ("witnesses (relationship_id, timeline_id, seq, how)", f"{jon}, {second}, 3, 'heard'"),
        (
            "world_events (timeline_id, seq, id, type, memory_type, content, happened_at, "
            "witnesses)",
            f"{second}, 9, 'e9', 'event', 'event', 'x', now(), '{{{mara}}}'",
        ),
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with database.transaction(jon) as connection:
                await connection.raw.execute(f"INSERT INTO {table} VALUES ({row})")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE turns DISABLE ROW LEVEL SECURITY",
        "DROP POLICY of_relationship ON turns",
        "TRUNCATE turns CASCADE",
        "UPDATE schema_migrations SET checksum = ''",
    ],
)
async def test_the_server_cannot_disable_row_level_security(built: Core, statement: str) -> None:
    """Its role owns no table."""
    async with built.database.pool.acquire() as raw:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await raw.execute(statement)


async def test_a_login_without_row_level_security_is_refused(
    settings: Settings, database_url: str
) -> None:
    """A server that could read all relationships does not start."""
    owner = await asyncpg.connect(database_url)
    try:
        await owner.execute("ALTER TABLE memories NO FORCE ROW LEVEL SECURITY")
        await owner.execute("ALTER TABLE memories DISABLE ROW LEVEL SECURITY")
    finally:
        await owner.close()
    with pytest.raises(DatabaseUnsuitable, match="memories"):
        async with Database.connect(database_url, size=2, timeout_s=5, publisher=CommitsOnly()):
            pass
    assert settings.database_url is not None


async def test_a_login_that_is_only_a_member_of_the_server_role_can_serve(
    settings: Settings, database_url: str
) -> None:
    """It owns nothing and may create nothing: the owner migrates."""
    owner = await asyncpg.connect(database_url)
    try:
        await owner.execute(
            "DO $$ BEGIN CREATE ROLE plain_member LOGIN IN ROLE foremind_server; "
            "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    finally:
        await owner.close()
    url = database_url.replace("//postgres:@", "//plain_member:@")
    changed = msgspec.structs.replace(settings, database_url=Secret(url))
    async with core(changed) as parts:
        assert await parts.database.pool.fetchval("SELECT session_user") == "plain_member"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await parts.database.pool.execute("CREATE TABLE mine (id int)")


def test_every_table_of_a_relationship_is_protected() -> None:
    """The server checks the same list of tables at its start, and SECURITY.md counts as many."""
    query = load_queries()["unprotected_tables"]
    assert set(re.findall(r"'(\w+)'", query)) == {*PROTECTED, *OF_WITNESSES}
    (stated,) = re.findall(r"\| (\d+) tables \|", (ROOT / "SECURITY.md").read_text("utf-8"))
    assert int(stated) == len(PROTECTED) + len(OF_WITNESSES)
