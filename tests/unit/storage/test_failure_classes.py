"""Every database error is classified as retryable or as a defect."""

import inspect

import asyncpg
import pytest
from asyncpg import exceptions
from asyncpg.exceptions import _base

from foremind.domain.errors import StorageUnavailable
from foremind.storage.database import DRIVER, SQLSTATES, kind_of, translate_errors

RAISED = sorted(
    {
        var
        for module in (exceptions, _base)
        for var in vars(module).values()
        if inspect.isclass(var) and issubclass(var, Exception) and not issubclass(var, Warning)
    },
    key=lambda error: (error.__module__, error.__qualname__),
)
WITH_SQLSTATE = [error for error in RAISED if getattr(error, "sqlstate", None)]
# Base classes, which are never raised themselves.
ABSTRACT = {
    exceptions.PostgresError,
    _base.PostgresError,
    exceptions.FatalPostgresError,
    exceptions.UnknownPostgresError,
}


@pytest.mark.parametrize("raised", WITH_SQLSTATE, ids=lambda error: f"{error.__name__}")
def test_every_sqlstate_is_in_the_table(raised: type[Exception]) -> None:
    """As a code or by its class, not by the default."""
    state: str = raised.sqlstate  # type: ignore[attr-defined]
    known = SQLSTATES.get(state) or SQLSTATES.get(state[:2])
    assert known is not None, state
    if raised is not exceptions.InvalidCachedStatementError:  # classified by type instead
        assert kind_of(raised("x")) == known


@pytest.mark.parametrize(
    "raised",
    [error for error in RAISED if error not in WITH_SQLSTATE and error not in ABSTRACT],
    ids=lambda error: f"{error.__name__}",
)
def test_every_error_of_the_driver_is_in_the_table(raised: type[Exception]) -> None:
    """Errors that asyncpg raises itself have no SQLSTATE."""
    if issubclass(raised, _base.InterfaceMessage | _base.InternalClientError):
        assert any(issubclass(raised, error) for error, _ in DRIVER)
        assert kind_of(raised("x")) in ("retryable", "defect")


def test_no_code_repeats_its_class() -> None:
    """Single codes are listed only if they differ from their class."""
    for state, kind in SQLSTATES.items():
        assert len(state) == 2 or SQLSTATES[state[:2]] != kind, state


@pytest.mark.parametrize(
    "raised",
    [
        asyncpg.DeadlockDetectedError,
        asyncpg.SerializationError,
        asyncpg.ReadOnlySQLTransactionError,
        asyncpg.DiskFullError,
        asyncpg.QueryCanceledError,
        asyncpg.LockNotAvailableError,
        asyncpg.AdminShutdownError,
        asyncpg.CannotConnectNowError,
        asyncpg.TooManyConnectionsError,
        asyncpg.ConnectionDoesNotExistError,
        asyncpg.InterfaceError,
        ConnectionResetError,
        TimeoutError,
    ],
)
def test_a_transient_failure_is_retryable(raised: type[Exception]) -> None:
    """It becomes StorageUnavailable, so that the client sends again."""
    with pytest.raises(StorageUnavailable) as caught, translate_errors():
        raise raised("x")
    assert caught.value.retryable


@pytest.mark.parametrize(
    "raised",
    [
        asyncpg.UniqueViolationError,
        asyncpg.UndefinedColumnError,
        asyncpg.DataError,
        asyncpg.InternalServerError,
        _base.DataError,
        ValueError,
        KeyError,
    ],
)
def test_a_defect_keeps_its_own_type(raised: type[Exception]) -> None:
    """Sending again would not help, and the error must stay visible."""
    with pytest.raises(raised), translate_errors():
        raise raised("x")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("could not commit transaction for shard 102015 on at least one active node", "retryable"),
        ("server closed the connection unexpectedly", "retryable"),
        ("could not receive data from server: Connection reset by peer", "retryable"),
        ("failure on connection marked as essential: 10.0.0.7:5432", "retryable"),
        ("SSL SYSCALL error: EOF detected", "retryable"),
        ("SSL connection has been closed unexpectedly", "retryable"),
        ("SSL error: unexpected eof while reading", "retryable"),
        ("unexpected node type in target list", "defect"),
    ],
)
def test_a_node_lost_in_a_transaction_is_retryable(message: str, kind: str) -> None:
    """Citus reports it as an internal error; others of these are defects."""
    assert kind_of(asyncpg.InternalServerError(message)) == kind
