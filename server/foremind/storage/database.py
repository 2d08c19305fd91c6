"""Database connections, pooled or not; transient failures become StorageUnavailable.

Classifies database errors: retryable, or a defect in Foremind.

The table has every class of SQLSTATE, and single codes that differ from their class; the code is
looked up first. Retryable errors become `StorageUnavailable`: nothing was stored, and the same
request may be sent again. All others are defects and keep their type.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Literal, Protocol, Self

import asyncpg
import msgspec
import pgvector.asyncpg
from asyncpg.exceptions import _base

from foremind.domain.clock import Clock
from foremind.domain.errors import DatabaseUnsuitable, StorageUnavailable
from foremind.runtime.fair_queue import ConnectionQueue
from foremind.runtime.supervision import SupervisedLoop
from foremind.storage.named_queries import as_one_read, load_queries
from foremind.storage.sharding import SESSION_SETTINGS, is_sharded

Kind = Literal["retryable", "defect"]

SQLSTATES: dict[str, Kind] = {
    "00": "defect",  # success
    "01": "defect",  # warning
    "02": "defect",  # no data
    "03": "defect",  # statement not yet complete
    "08": "retryable",  # connection
    "09": "defect",  # triggered action
    "0A": "defect",  # not supported
    "0B": "defect",  # transaction initiation
    "0F": "defect",  # locator
    "0L": "defect",  # grantor
    "0P": "defect",  # role
    "0Z": "defect",  # diagnostics
    "10": "defect",  # XQuery
    "20": "defect",  # case not found
    "21": "defect",  # cardinality
    "22": "defect",  # data
    "23": "defect",  # integrity constraint
    "24": "defect",  # cursor state
    "25": "defect",  # transaction state
    "25006": "retryable",  # read-only: a standby, or set to be so
    "25P03": "retryable",  # idle in a transaction for too long: the connection was closed
    "25P04": "retryable",  # transaction timeout
    "26": "defect",  # statement name
    "27": "defect",  # triggered data change
    "28": "retryable",  # the login was revoked or its password changed: an operator must act
    "2B": "defect",  # dependent privileges
    "2D": "defect",  # transaction termination
    "2F": "defect",  # SQL routine
    "34": "defect",  # cursor name
    "38": "defect",  # external routine
    "39": "defect",  # external routine invocation
    "3B": "defect",  # savepoint
    "3D": "retryable",  # the database does not exist: perhaps it is being restored
    "3F": "defect",  # schema name
    "40": "retryable",  # rolled back: deadlock, serialisation
    "42": "defect",  # syntax, access rule
    "44": "defect",  # WITH CHECK OPTION
    "53": "retryable",  # disk full, out of memory, too many connections
    "54": "defect",  # program limit
    "55": "retryable",  # not in prerequisite state: lock not available, object in use
    "55P02": "defect",  # a setting that cannot be changed
    "55P04": "defect",  # an enum value not yet committed
    "57": "retryable",  # cancelled, shutting down, starting up
    "58": "retryable",  # input and output, files
    "72": "retryable",  # snapshot too old
    "F0": "retryable",  # configuration file: an operator must act
    "HV": "defect",  # foreign data
    "P0": "defect",  # PL/pgSQL
    "XX": "defect",  # internal error, damaged data
}

#: Errors that asyncpg raises itself; the first match decides.
DRIVER: tuple[tuple[type[BaseException], Kind], ...] = (
    (asyncpg.InvalidCachedStatementError, "retryable"),  # the schema changed under a plan
    (_base.DataError, "defect"),  # an argument does not fit its type
    (asyncpg.exceptions.ClientConfigurationError, "defect"),
    (asyncpg.UnsupportedClientFeatureError, "defect"),
    (asyncpg.exceptions.UnsupportedServerFeatureError, "defect"),
    (asyncpg.InterfaceError, "retryable"),  # the connection is closed
    (asyncpg.InternalClientError, "retryable"),  # the connection is broken or closing
    (OSError, "retryable"),  # TimeoutError is one
    (asyncio.IncompleteReadError, "retryable"),
)

# What Citus says when a node was lost in the middle of a transaction, mostly in libpq's words and
# without an SQLSTATE of its own. A node that cannot be reached is a connection failure.
_LOST_NODE = re.compile(
    "server closed the connection unexpectedly|connection not open|no connection to the server"
    "|could not (?:send data to|receive data from) server|could not commit transaction for shard"
    "|could not commit transaction on any active node|failure on connection marked as essential"
    "|SSL SYSCALL error|SSL error:|SSL connection has been closed"
)


def kind_of(error: BaseException) -> Kind | None:
    """Classify an error; None if it does not come from the database."""
    for error_type, kind in DRIVER:
        if isinstance(error, error_type):
            return kind
    state = getattr(error, "sqlstate", None)
    if not isinstance(error, asyncpg.PostgresError) or state is None:
        return None
    if state == asyncpg.InternalServerError.sqlstate and _LOST_NODE.search(str(error)):
        return "retryable"
    return SQLSTATES.get(state) or SQLSTATES.get(state[:2]) or "defect"


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn retryable errors into StorageUnavailable; leave defects as they are."""
    try:
        yield
    except Exception as error:
        if kind_of(error) != "retryable":
            raise
        raise StorageUnavailable(
            f"The database is not available ({type(error).__name__}); try again shortly."
        ) from error


#: The role that the server assumes if its login may; row-level security applies to it.
SERVER_ROLE = "foremind_server"

_QUEUED_SHARE = 3  # queued work gets one in this many connections of the pool
_MAX_PER_OWNER = 1  # of these, for one owner
_MAX_WAITING_PER_OWNER = 20
_CLOSE_S = 10.0  # how long closing the pool waits for connections in use

#: The task that queues for connections, and its owner; None while the task holds a connection.
_queued: ContextVar[tuple[asyncio.Task[Any], str] | None] = ContextVar("queued", default=None)


def queue_connections_as(owner: str) -> None:
    """Make the current task queue for its connections, fairly among owners, from now on.

    So that messages and background work, which do not queue, always find a connection.
    """
    task = asyncio.current_task()
    assert task is not None
    _queued.set((task, owner))


class Publisher(Protocol):
    """Tells every server process what a transaction announces."""

    async def commit(self, raw: Any, announcements: Sequence[msgspec.Struct]) -> None:
        """Commit the transaction of a connection, and publish what it announces, in order.

        Published is only what is committed, and the commit succeeds even if publishing fails.
        """


class DatabaseConnection:
    """One pooled connection inside a transaction."""

    def __init__(self, raw: Any, fingerprint: str | None, queries: Mapping[str, str]) -> None:
        self.raw = raw
        #: Of the embedding model that the process uses, once it is known.
        self.fingerprint = fingerprint
        self._queries = queries
        #: What the transaction announces, in order.
        self.announcements: list[msgspec.Struct] = []
        #: Called as soon as the transaction is committed.
        self.when_committed: list[Callable[[], None]] = []

    async def scope_to(self, relationship_id: int) -> None:
        """Make only the rows of this relationship visible until the transaction ends."""
        await self.raw.execute(_set_relationship(relationship_id))

    async def show_audit_of(self, actor: str, pseudonym: str) -> None:
        """Also make the entries of an actor in any relationship's audit trail visible."""
        await self.raw.execute(f"SET LOCAL foremind.actor = {quoted(actor)}")
        await self.raw.execute(f"SET LOCAL foremind.pseudonym = {quoted(pseudonym)}")

    def announce(self, announcement: msgspec.Struct) -> None:
        """Tell every server process when the transaction commits."""
        self.announcements.append(announcement)

    async def row(self, name: str, *args: object) -> asyncpg.Record | None:
        """Run a named query and return its first row."""
        return await self.raw.fetchrow(self._queries[name], *args)

    async def rows(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        """Run a named query and return its rows."""
        return await self.raw.fetch(self._queries[name], *args)  # type: ignore[no-any-return]

    async def execute(self, name: str, *args: object) -> None:
        """Run a named query, discarding its result."""
        await self.raw.execute(self._queries[name], *args)

    async def batches(
        self, name: str, size: int, *args: object
    ) -> AsyncIterator[Sequence[asyncpg.Record]]:
        """Run a named query and yield its rows, at most `size` at a time."""
        cursor = await self.raw.cursor(self._queries[name], *args)
        while rows := await cursor.fetch(size):
            yield rows


#: Stores what a transaction has erased, by kind, within it.
Count = Callable[[DatabaseConnection, Mapping[str, int]], Awaitable[None]]


class Database:
    """A bounded connection pool; every call may raise StorageUnavailable.

    Tables with users' words are accessed through `of` or `transaction`, which set the relationship:
    without one, row-level security shows no rows.
    """

    def __init__(self, pool: Any, url: str, timeout_s: float, publisher: Publisher) -> None:
        self.pool = pool
        self._publisher = publisher
        self._timeout_s = timeout_s
        capacity = max(1, pool.get_max_size() // _QUEUED_SHARE)
        self._queue = ConnectionQueue(capacity, _MAX_PER_OWNER, _MAX_WAITING_PER_OWNER, timeout_s)
        #: The URL that the pool connects to.
        self.url = url
        #: Whether relationships are spread over the nodes of a Citus database.
        self.sharded = False
        #: Of the embedding model that the process uses, once it is known; whether its vectors are
        #: in the columns `other_embedding`; and the queries, which read and write its vectors.
        self.fingerprint: str | None = None
        self.swapped = False
        self.queries: Mapping[str, str] = load_queries()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, url: str, *, size: int, timeout_s: float, publisher: Publisher
    ) -> AsyncIterator[Self]:
        """Open a pool of at most `size` connections.

        Args:
            timeout_s: limit for connecting, for a statement, and for waiting for a connection.
            publisher: commits transactions and publishes what they announce.

        Raises:
            DatabaseUnsuitable: row-level security does not apply to this login.
        """
        with translate_errors():
            pool = await asyncpg.create_pool(
                url,
                min_size=min(2, size),
                max_size=size,
                timeout=timeout_s,
                command_timeout=timeout_s,
                init=_prepare_connection,
                reset=_no_reset,
                connect=connect_as_server,
                # Queries are short and repeated: JIT compilation costs more than it saves.
                server_settings={
                    "application_name": "foremind",
                    "jit": "off",
                    "plan_cache_mode": "force_generic_plan",
                },
            )
        try:
            database = cls(pool, url, timeout_s, publisher)
            await database._check_isolation()
            async with database._connection() as raw:
                database.sharded = await is_sharded(raw)
            yield database
        finally:
            with suppress(TimeoutError):  # connections still in use are terminated
                async with asyncio.timeout(_CLOSE_S):
                    await pool.close()

    def use_vectors(self, fingerprint: str, *, swapped: bool) -> None:
        """Read and write the vectors of an embedding model from now on."""
        self.fingerprint = fingerprint
        self.swapped = swapped
        self.queries = load_queries(swapped=swapped)

    async def rows(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        """Run a named query and return its rows."""
        async with self.acquired() as raw:
            return await raw.fetch(self.queries[name], *args)  # type: ignore[no-any-return]

    async def row(self, name: str, *args: object) -> asyncpg.Record | None:
        """Run a named query and return its first row."""
        async with self.acquired() as raw:
            return await raw.fetchrow(self.queries[name], *args)

    async def value(self, name: str, *args: object) -> Any:
        """Run a named query and return the first value of its first row."""
        async with self.acquired() as raw:
            return await raw.fetchval(self.queries[name], *args)

    async def execute(self, name: str, *args: object) -> None:
        """Run a named query, discarding its result."""
        async with self.acquired() as raw:
            await raw.execute(self.queries[name], *args)

    async def announce(self, announcement: msgspec.Struct) -> None:
        """Tell every server process."""
        async with self.transaction() as connection:
            connection.announce(announcement)

    def for_relationship(self, relationship_id: int) -> "RelationshipData":
        """Return access to the data of one relationship."""
        return RelationshipData(self, relationship_id)

    @asynccontextmanager
    async def transaction(
        self, relationship_id: int | None = None
    ) -> AsyncIterator[DatabaseConnection]:
        """Commit on leaving, roll back on an error; committed means on disk."""
        async with self._transaction("BEGIN", relationship_id) as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self, relationship_id: int) -> AsyncIterator[DatabaseConnection]:
        """Begin a read-only transaction with one consistent view of a relationship."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        async with self._transaction(begin, relationship_id) as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(
        self, begin: str, relationship_id: int | None
    ) -> AsyncIterator[DatabaseConnection]:
        first = [begin]
        if relationship_id is not None:
            first.append(_set_relationship(relationship_id))
        if not self.sharded:  # in one round trip; Citus would repeat both on each node
            first = ["; ".join(first)]
        async with self.acquired() as raw:
            try:
                for statement in first:
                    await raw.execute(statement)
                connection = DatabaseConnection(raw, self.fingerprint, self.queries)
                yield connection
                await self._publisher.commit(raw, connection.announcements)
                for tell in connection.when_committed:
                    tell()
            except BaseException:
                await _roll_back(raw)
                raise

    @asynccontextmanager
    async def acquired(self) -> AsyncIterator[Any]:
        """Take a connection of the pool, in its turn if the current task queues for it."""
        queued = _queued.get()
        # Other tasks inherit the variable but do not queue: others may wait for them as well.
        if queued is None or queued[0] is not asyncio.current_task():
            async with self._connection() as raw:
                yield raw
            return
        async with self._queue.turn(queued[1]):
            _queued.set(None)  # a task that holds a connection never queues for another
            try:
                async with self._connection() as raw:
                    yield raw
            finally:
                _queued.set(queued)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        with translate_errors():
            async with self.pool.acquire(timeout=self._timeout_s) as raw:
                try:
                    yield raw
                except asyncpg.ReadOnlySQLTransactionError:
                    # The connection may lead to a former standby; a new one may be able to write.
                    await self.replace_connections()
                    raise

    async def replace_connections(self) -> None:
        """Replace every connection of the pool before it is used again."""
        await self.pool.expire_connections()

    async def _check_isolation(self) -> None:
        unprotected = [row["name"] for row in await self.rows("unprotected_tables")]
        if unprotected:
            raise DatabaseUnsuitable(
                "Row-level security does not hold for this database login "
                f"({', '.join(unprotected)}). Let it be a member of the role {SERVER_ROLE}: "
                f"GRANT {SERVER_ROLE} TO the login, as an administrator."
            )


class RelationshipData:
    """Runs named queries on the rows of one relationship, which is the first argument of each.

    A read is one statement, unless the database is sharded: Citus passes on to its workers what a
    transaction sets, but not what a statement does. A write is a transaction.
    """

    def __init__(self, database: Database, relationship_id: int) -> None:
        self._database = database
        self._relationship_id = relationship_id

    async def rows(self, name: str, *args: object) -> Sequence[asyncpg.Record]:
        """Run a named query that only reads, and return its rows."""
        async with self._reading(name, args) as (raw, query):
            return await raw.fetch(query, *args)  # type: ignore[no-any-return]

    async def row(self, name: str, *args: object) -> asyncpg.Record | None:
        """Run a named query that only reads, and return its first row."""
        async with self._reading(name, args) as (raw, query):
            return await raw.fetchrow(query, *args)

    async def execute(self, name: str, *args: object) -> None:
        """Run a named query, discarding its result."""
        async with self._database.transaction(self._relationship_id) as connection:
            await connection.execute(name, *args)

    @asynccontextmanager
    async def _reading(self, name: str, args: Sequence[object]) -> AsyncIterator[tuple[Any, str]]:
        assert args[0] == self._relationship_id
        query = self._database.queries[name]
        if self._database.sharded:
            async with self._database.transaction(self._relationship_id) as connection:
                yield connection.raw, query
        else:
            async with self._database.acquired() as raw:
                yield raw, as_one_read(query)


def _set_relationship(relationship_id: int) -> str:
    return f"SET LOCAL foremind.relationship = '{int(relationship_id)}'"


def quoted(text: str) -> str:
    """Return a string constant, whatever `standard_conforming_strings` says about backslashes."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


async def _roll_back(raw: Any) -> None:
    """Roll a transaction back; terminate the connection if that fails."""
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
    """Connect as `asyncpg.connect` does, and assume the server's role if the login may."""
    raw = await asyncpg.connect(*args, **options)
    try:
        if await raw.fetchval(load_queries()["may_take_server_role"]):
            await raw.execute(f"SET ROLE {SERVER_ROLE}")
    except BaseException:  # also when cancelled: nobody else would close it
        raw.terminate()
        raise
    return raw


async def _prepare_connection(raw: Any) -> None:
    extensions = {row["extname"] for row in await raw.fetch(load_queries()["extensions"])}
    if "citus" in extensions:
        await raw.execute(SESSION_SETTINGS)
    if "vector" in extensions:  # missing before the first migration, which creates it
        await pgvector.asyncpg.register_vector(raw)


async def _no_reset(_raw: Any) -> None:
    """Skip the reset: no setting outlives a transaction, and it would cost every query a trip."""


#: So that the database soon notices that a machine is unreachable.
KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
#: The maximum time between two signs of life of such a loop.
MAX_SILENCE_S = 60.0

_CONNECT_S = 10.0
_PING_S = 10.0  # a connection may break without any sign


async def hold_connection(
    url: str,
    clock: Clock,
    loop: SupervisedLoop,
    begin: Callable[[Any, Callable[[Exception], None]], Awaitable[None]],
) -> None:
    """Open a connection, and keep it until it is lost.

    Args:
        begin: prepares the connection; its second argument ends it with an exception.

    Raises:
        StorageUnavailable: it was lost, or could not be opened.
    """
    with translate_errors():
        connection = await connect_as_server(
            url, timeout=_CONNECT_S, command_timeout=_CONNECT_S, server_settings=KEEPALIVES
        )
        wake = asyncio.Event()
        failures: list[Exception] = []

        def fail(error: Exception) -> None:
            failures.append(error)
            wake.set()

        try:
            connection.add_termination_listener(lambda _: wake.set())
            await begin(connection, fail)
            while not failures and not connection.is_closed():
                wake.clear()
                loop.report_progress()
                timer = clock.call_at(clock.monotonic() + _PING_S, wake.set)
                try:
                    await wake.wait()
                finally:
                    timer.cancel()
                await connection.execute(load_queries()["ping"])
            if failures:
                raise failures[0]
            raise StorageUnavailable("A connection of its own was lost.")
        finally:
            connection.terminate()
