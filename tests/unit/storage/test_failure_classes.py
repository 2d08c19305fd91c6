"""Whatever the database can raise is either worth another try or a defect: none is forgotten."""

import inspect

import asyncpg
import pytest
from asyncpg import exceptions
from asyncpg.exceptions import _base

from foremind.domain.errors import StorageUnavailable
from foremind.storage.failure_classes import DRIVER, SQLSTATES, errors_translated, kind_of

RAISED = sorted(
    {
        var
        for module in (exceptions, _base)
        for var in vars(module).values()
        if inspect.isclass(var) and issubclass(var, Exception) and not issubclass(var, Warning)
    },
    key=lambda each: (each.__module__, each.__qualname__),
)
WITH_A_STATE = [each for each in RAISED if getattr(each, "sqlstate", None)]
# Nothing that is raised is exactly one of these: they only hold others together.
ABSTRACT = {
    exceptions.PostgresError,
    _base.PostgresError,
    exceptions.FatalPostgresError,
    exceptions.UnknownPostgresError,
}


@pytest.mark.parametrize("raised", WITH_A_STATE, ids=lambda each: f"{each.__name__}")
def test_every_sqlstate_is_in_the_table(raised: type[Exception]) -> None:
    """By itself or by its class, and never by falling through."""
    state: str = raised.sqlstate  # type: ignore[attr-defined]
    known = SQLSTATES.get(state) or SQLSTATES.get(state[:2])
    assert known is not None, state
    if raised is not exceptions.InvalidCachedStatementError:  # its state says less than its type
        assert kind_of(raised("x")) == known


@pytest.mark.parametrize(
    "raised",
    [each for each in RAISED if each not in WITH_A_STATE and each not in ABSTRACT],
    ids=lambda each: f"{each.__name__}",
)
def test_every_error_of_the_driver_is_in_the_table(raised: type[Exception]) -> None:
    """asyncpg raises some of its own, which have no SQLSTATE."""
    if issubclass(raised, _base.InterfaceMessage | _base.InternalClientError):
        assert any(issubclass(raised, each) for each, _ in DRIVER)
        assert kind_of(raised("x")) in ("retryable", "defect")


def test_nothing_in_the_table_is_idle() -> None:
    """A single code that says the same as its class would only be noise."""
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
def test_what_may_pass_by_itself_is_told_as_such(raised: type[Exception]) -> None:
    """The client is asked to send again."""
    with pytest.raises(StorageUnavailable) as told, errors_translated():
        raise raised("x")
    assert told.value.retryable


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
    """Sending it again would change nothing, and whoever mends it wants to see it."""
    with pytest.raises(raised), errors_translated():
        raise raised("x")
