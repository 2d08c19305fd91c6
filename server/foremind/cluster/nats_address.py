"""Where NATS is, and how this process connects to it: passwords, credentials files, TLS."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import nats.errors
import nkeys
from nats.aio.client import Client, RawCredentials

from foremind.domain.errors import InvalidFile

#: What connecting may fail with, for a reason that may pass.
CONNECT_ERRORS = (OSError, TimeoutError, nats.errors.Error, nkeys.NkeysError, InvalidFile)

_CONNECT_S = 2
_CLOSE_S = 1
_PING_S = 2  # a connection without an answer to two of them counts as lost
_JWT = re.compile(r"BEGIN NATS USER JWT-+\s+\S+\s")
_SEED = re.compile(r"BEGIN USER NKEY SEED-+\s+(\S+)\s")


class _TlsMissing(nats.errors.Error):
    """A server that is addressed by `tls://` offers no TLS."""


@dataclass(frozen=True, slots=True)
class _NatsServer:
    """One server: its URL without what proves who the user is, and that."""

    url: str
    user: str | None
    password: str | None = field(repr=False)
    token: str | None = field(repr=False)

    @classmethod
    def of(cls, url: str) -> Self:
        parts = urlsplit(url)
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        user = unquote(parts.username) if parts.username else None
        if parts.password is None:
            return cls(address, None, None, token=user)
        return cls(address, user, unquote(parts.password), token=None)


class _Client(Client):
    """A client that refuses servers without TLS where it was asked for, before it says who it is.

    The library encrypts if the server demands it, whatever the URL says.
    """

    def __init__(self, *, needs_tls: bool) -> None:
        super().__init__()
        self._needs_tls = needs_tls

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self._needs_tls and initial_connection and not info.get("tls_required"):
            raise _TlsMissing
        await super()._process_info(info, initial_connection=initial_connection)


class NatsAddress:
    """The servers that NATS consists of, and how to log in.

    Args:
        urls: separated by commas: `nats://host:4222`, `tls://user:password@host:4222`,
            `nats://token@host`. Special characters in user, password or token are percent-encoded.
        credentials: a credentials file, with a user's JWT and seed, which is read again for every
            connection.

    Raises:
        InvalidFile: the credentials file cannot be used.
    """

    def __init__(self, urls: str, credentials: Path | None = None) -> None:
        self._servers = [_NatsServer.of(url) for url in urls.split(",")]
        self._credentials = credentials
        _read(credentials)

    async def connect(
        self,
        on_error: Callable[[Exception], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
    ) -> Client:
        """Connect to the first server that accepts.

        Args:
            on_error: awaited with errors that do not end the connection.
            on_lost: awaited when the connection is lost.

        Raises:
            CONNECT_ERRORS: no server accepted; that of the last one.
        """
        failure: Exception = nats.errors.NoServersError()
        for server in self._servers:
            client = _Client(needs_tls=server.url.startswith("tls:"))
            try:
                await self._connect(client, server, on_error, on_lost)
            except CONNECT_ERRORS as error:
                failure = error
                await close(client)
            else:
                return client
        raise failure

    async def _connect(
        self,
        client: Client,
        server: _NatsServer,
        on_error: Callable[[Exception], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
    ) -> None:
        context = None
        if server.url.startswith("tls:"):  # reading every authority takes a while
            context = await asyncio.to_thread(ssl.create_default_context)
        await client.connect(
            server.url,
            tls=context,
            name="foremind",
            user_credentials=_read(self._credentials),
            allow_reconnect=False,  # whoever holds the connection connects again
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_CONNECT_S,
            ping_interval=_PING_S,
            max_outstanding_pings=2,
            no_echo=True,
            error_cb=on_error,
            closed_cb=on_lost,
            disconnected_cb=on_lost,
            user=server.user,
            password=server.password,
            token=server.token,
        )


async def close(client: Client) -> None:
    """Close a connection, whatever its state."""
    with suppress(*CONNECT_ERRORS):
        # After a failed TLS handshake, asyncio never reports that the connection is closed.
        async with asyncio.timeout(_CLOSE_S):
            await client.close()


def problem_of(error: BaseException) -> str:
    """Return what prevents a connection, for the operator, without addresses or secrets."""
    if isinstance(error, InvalidFile):
        return str(error)
    if isinstance(error, _TlsMissing):
        return "it offers no TLS, which its URL asks for"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted"
    return "it refuses this user" if is_refusal(error) else "it cannot be reached"


def is_refusal(error: BaseException) -> bool:
    """Return whether the server refuses the user, or what the user wants."""
    reason = str(error).lower()
    return "authorization" in reason or "permissions violation" in reason


def _read(path: Path | None) -> RawCredentials | None:
    """Read a credentials file.

    Raises:
        InvalidFile: it cannot be read, or is no such file.
    """
    if path is None:
        return None
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "expected text"
        raise InvalidFile(f"FOREMIND_NATS_CREDENTIALS: {reason}") from None
    seed = _SEED.search(text)
    try:
        if seed is None or not _JWT.search(text):
            raise nkeys.NkeysError
        nkeys.from_seed(bytearray(seed[1].encode())).wipe()
    except nkeys.NkeysError:
        raise InvalidFile(
            "FOREMIND_NATS_CREDENTIALS: expected the credentials file of a NATS user: JWT and seed"
        ) from None
    return RawCredentials(text)
