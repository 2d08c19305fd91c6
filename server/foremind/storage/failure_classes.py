"""Classifies database errors: retryable, or a defect in Foremind.

The table has every class of SQLSTATE, and single codes that differ from their class; the code is
looked up first. Retryable errors become `StorageUnavailable`: nothing was stored, and the same
request may be sent again. All others are defects and keep their type.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import asyncpg
from asyncpg.exceptions import _base

from foremind.domain.errors import StorageUnavailable

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
