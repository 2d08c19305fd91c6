"""The connection pool: named queries in, rows out, one kind of error when it is away."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import asyncpg
import msgspec
import pgvector.asyncpg

from foremind.errors import DatabaseUnsuitable, StorageUnavailable
from foremind.storage.queries import load_queries

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
)


@contextmanager
def _errors_translated() -> Iterator[None]:
    try:
        yield
    except _AWAY as error:
        raise StorageUnavailable(
            f"The database did not answer ({type(error).__name__}); try again shortly."
        ) from error


#: The role the server works as, where its login may: it cannot pass over row-level security.
SERVER_ROLE = "foremind_server"


class Connection:
    """One pooled connection inside a transaction."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def within(self, relationship_id: int) -> None:
        """See the rows of this relationship, and of no other, until the transaction ends."""
        await self.raw.execute(_within(relationship_id))

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
        with _errors_translated():
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
    async def transaction(self, relationship_id: int | None = None) -> AsyncIterator[Connection]:
        """Commit on leaving, roll back on an error; committed means on disk."""
        begin = "BEGIN"
        if relationship_id is not None:  # in one round trip with what begins it
            begin += f"; {_within(relationship_id)}"
        async with self._acquired() as raw:
            try:
                await raw.execute(begin)
                yield Connection(raw)
                await raw.execute("COMMIT")
            except BaseException:
                if not raw.is_closed():
                    await raw.execute("ROLLBACK")
                raise

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Any]:
        with _errors_translated():
            async with self.pool.acquire(timeout=self._timeout_s) as raw:
                yield raw

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


async def connect_as_server(*args: Any, **options: Any) -> Any:
    """Connect as `asyncpg.connect` does, and work as the server's role where the login may."""
    raw = await asyncpg.connect(*args, **options)
    if await raw.fetchval(load_queries()["may_take_server_role"]):
        await raw.execute(f"SET ROLE {SERVER_ROLE}")
    return raw


async def _prepare_connection(raw: Any) -> None:
    # Absent before the first migration, which is what creates the extension.
    if await raw.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        await pgvector.asyncpg.register_vector(raw)


async def _keep_as_it_is(_raw: Any) -> None:
    """Leave the settings, which nothing changes: a reset would be a round trip for every query."""
