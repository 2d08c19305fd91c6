"""The connection pool: named queries in, rows out, one kind of error when it is away."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Self

import asyncpg
import msgspec
import pgvector.asyncpg

from foremind.domain.errors import DatabaseUnsuitable
from foremind.storage.failure_classes import errors_translated, kind_of
from foremind.storage.fair_queue import ConnectionQueue
from foremind.storage.named_queries import load_queries

#: The role the server works as, where its login may: it cannot pass over row-level security.
SERVER_ROLE = "foremind_server"


_SHARE = 3  # one in so many connections may work for those who can wait
_OF_EACH = 1  # of these, for one of them
_WAITING = 20  # more of one of them that wait for a connection
_CLOSE_S = 10.0  # for what still works on a connection when the pool is closed

#: For whom the task that is named works, which holds no connection yet.
_patient: ContextVar[tuple[asyncio.Task[Any], str] | None] = ContextVar("patient", default=None)


def work_for(who: str) -> None:
    """Have what this task does from now on wait in the line of those who can wait.

    What players and the server itself wait for then always finds a connection.
    """
    task = asyncio.current_task()
    assert task is not None
    _patient.set((task, who))


class DatabaseConnection:
    """One pooled connection inside a transaction."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def within(self, relationship_id: int) -> None:
        """See the rows of this relationship, and of no other, until the transaction ends."""
        await self.raw.execute(_within(relationship_id))

    async def acting(self, actor: str, pseudonym: str) -> None:
        """See, besides, what the audit trails of others tell of what this actor did."""
        await self.execute("name_actor", actor, pseudonym)

    async def counting(self) -> None:
        """See, besides, what others agreed to be counted by."""
        await self.raw.execute("SET LOCAL foremind.counting = 'on'")

    async def announce(self, told: msgspec.Struct) -> None:
        """Tell every server process something, once the transaction commits."""
        await self.execute("announce", _written(told))

    async def row(self, name: str, *args: object) -> asyncpg.Record | None:
        """Run a named query and return its first row."""
        return await self.raw.fetchrow(load_queries()[name], *args)

    async def rows(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        """Run a named query and return its rows."""
        return await self.raw.fetch(load_queries()[name], *args)  # type: ignore[no-any-return]

    async def execute(self, name: str, *args: object) -> None:
        """Run a named query for its effect."""
        await self.raw.execute(load_queries()[name], *args)

    async def portions(
        self, name: str, size: int, *args: object
    ) -> AsyncIterator[Sequence[asyncpg.Record]]:
        """Run a named query and yield its rows, at most `size` at a time."""
        cursor = await self.raw.cursor(load_queries()[name], *args)
        while rows := await cursor.fetch(size):
            yield rows


class Database:
    """A bounded pool of connections; every call may raise StorageUnavailable.

    Tables that hold what users said are read and written through `of` or `transaction`, which name
    the relationship: without it they show no rows.
    """

    def __init__(self, pool: Any, url: str, timeout_s: float) -> None:
        self.pool = pool
        self._timeout_s = timeout_s
        places = max(1, pool.get_max_size() // _SHARE)
        self._line = ConnectionQueue(places, _OF_EACH, _WAITING, timeout_s)
        #: Where it connects to.
        self.url = url

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, *, size: int, timeout_s: float) -> AsyncIterator[Self]:
        """Hold at most `size` connections.

        No statement runs longer than `timeout_s`, and nobody waits longer for a connection.

        Raises:
            DatabaseUnsuitable: row-level security does not hold for this login.
        """
        with errors_translated():
            pool = await asyncpg.create_pool(
                url,
                min_size=min(2, size),
                max_size=size,
                timeout=timeout_s,
                command_timeout=timeout_s,
                init=_prepare_connection,
                reset=_keep_as_it_is,
                connect=connect_as_server,
                # Plans are short and repeated: compiling them costs more than it gains.
                server_settings={
                    "application_name": "foremind",
                    "jit": "off",
                    "plan_cache_mode": "force_generic_plan",
                },
            )
        try:
            database = cls(pool, url, timeout_s)
            await database._check_isolation()
            yield database
        finally:
            with suppress(TimeoutError):  # a pool that is left so is torn down by then
                async with asyncio.timeout(_CLOSE_S):
                    await pool.close()

    async def rows(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        """Run a named query and return its rows."""
        async with self._acquired() as raw:
            return await raw.fetch(load_queries()[name], *args)  # type: ignore[no-any-return]

    async def row(self, name: str, *args: object) -> asyncpg.Record | None:
        """Run a named query and return its first row."""
        async with self._acquired() as raw:
            return await raw.fetchrow(load_queries()[name], *args)

    async def value(self, name: str, *args: object) -> Any:
        """Run a named query and return the first value of its first row."""
        async with self._acquired() as raw:
            return await raw.fetchval(load_queries()[name], *args)

    async def execute(self, name: str, *args: object) -> None:
        """Run a named query for its effect."""
        async with self._acquired() as raw:
            await raw.execute(load_queries()[name], *args)

    async def announce(self, told: msgspec.Struct) -> None:
        """Tell every server process something."""
        await self.execute("announce", _written(told))

    def of(self, relationship_id: int) -> "RelationshipData":
        """Return what is stored of one relationship."""
        return RelationshipData(self, relationship_id)

    @asynccontextmanager
    async def transaction(
        self, relationship_id: int | None = None
    ) -> AsyncIterator[DatabaseConnection]:
        """Commit on leaving, roll back on an error; committed means on disk."""
        begin = "BEGIN"
        if relationship_id is not None:  # in one round trip with what begins it
            begin += f"; {_within(relationship_id)}"
        async with self._begun(begin) as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self, relationship_id: int) -> AsyncIterator[DatabaseConnection]:
        """Read several things of a relationship as of one moment."""
        begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_within(relationship_id)}"
        async with self._begun(begin) as connection:
            yield connection

    @asynccontextmanager
    async def _begun(self, begin: str) -> AsyncIterator[DatabaseConnection]:
        async with self._acquired() as raw:
            try:
                await raw.execute(begin)
                yield DatabaseConnection(raw)
                await raw.execute("COMMIT")
            except BaseException:
                await _rolled_back(raw)
                raise

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Any]:
        patient = _patient.get()
        # What it began in a task of its own, others may wait for as well.
        if patient is None or patient[0] is not asyncio.current_task():
            async with self._connection() as raw:
                yield raw
            return
        async with self._line.turn(patient[1]):
            _patient.set(None)  # whoever holds a connection never waits in line for another
            try:
                async with self._connection() as raw:
                    yield raw
            finally:
                _patient.set(patient)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        with errors_translated():
            async with self.pool.acquire(timeout=self._timeout_s) as raw:
                try:
                    yield raw
                except asyncpg.ReadOnlySQLTransactionError:
                    # Whether a connection may write was decided when it was made: another may.
                    await self.replace_connections()
                    raise

    async def replace_connections(self) -> None:
        """Have every connection of the pool made anew before it is used again."""
        await self.pool.expire_connections()

    async def _check_isolation(self) -> None:
        bare = [row["name"] for row in await self.rows("unprotected_tables")]
        if bare:
            raise DatabaseUnsuitable(
                f"Row-level security does not hold for this database login ({', '.join(bare)}). "
                f"Let it be a member of the role {SERVER_ROLE}: GRANT {SERVER_ROLE} TO the login, "
                "as an administrator."
            )


class RelationshipData:
    """Runs named queries that see the rows of one relationship, each in its own transaction."""

    def __init__(self, database: Database, relationship_id: int) -> None:
        self._database = database
        self._relationship_id = relationship_id

    async def rows(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        """Run a named query and return its rows."""
        async with self._database.transaction(self._relationship_id) as connection:
            return await connection.rows(name, *args)

    async def row(self, name: str, *args: object) -> asyncpg.Record | None:
        """Run a named query and return its first row."""
        async with self._database.transaction(self._relationship_id) as connection:
            return await connection.row(name, *args)

    async def execute(self, name: str, *args: object) -> None:
        """Run a named query for its effect."""
        async with self._database.transaction(self._relationship_id) as connection:
            await connection.execute(name, *args)


def _within(relationship_id: int) -> str:
    return f"SET LOCAL foremind.relationship = '{int(relationship_id)}'"


def _written(told: msgspec.Struct) -> str:
    return msgspec.json.encode(told).decode()


async def _rolled_back(raw: Any) -> None:
    """Undo a transaction; a connection on which that fails is given up, and says no more."""
    if raw.is_closed():
        return
    try:
        await raw.execute("ROLLBACK")
    except Exception as error:
        if kind_of(error) is None:
            raise
        with suppress(Exception):
            raw.terminate()


async def connect_as_server(*args: Any, **options: Any) -> Any:
    """Connect as `asyncpg.connect` does, and work as the server's role where the login may."""
    raw = await asyncpg.connect(*args, **options)
    try:
        if await raw.fetchval(load_queries()["may_take_server_role"]):
            await raw.execute(f"SET ROLE {SERVER_ROLE}")
    except BaseException:  # cancelled as well: nobody else would close it
        raw.terminate()
        raise
    return raw


async def _prepare_connection(raw: Any) -> None:
    # Absent before the first migration, which is what creates the extension.
    if await raw.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        await pgvector.asyncpg.register_vector(raw)


async def _keep_as_it_is(_raw: Any) -> None:
    """Leave the settings, which nothing changes: a reset would be a round trip for every query."""
