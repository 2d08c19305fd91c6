"""Announcements through NATS, published after the commit.

A process may die between its commit and publishing, and NATS may be away or drop messages. So
every message has a number, and a process that misses one, or loses its connection, does not trust
its caches until it has compared versions with the database (`cluster/freshness`).
"""

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec
import nats.errors
import nkeys
import structlog
from cachetools import LRUCache
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg

from foremind.cluster.announcement_bus import AnnouncementReceiver
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, InvalidFile
from foremind.domain.health import OK, degraded
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor, restart_delay_s

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


_FLUSH_S = 2
_MAX_WAITING = 10_000  # messages of this process that wait for NATS; beyond, the oldest are dropped
_MAX_PUBLISHERS = 10_000  # whose last number is remembered
_RETRYABLE = (*CONNECT_ERRORS, ForemindError)

_log = structlog.get_logger("foremind.cluster")


class _Message(msgspec.Struct, frozen=True):
    """What one transaction announced; `number` rises by one with each message of a publisher."""

    publisher: str
    number: int
    announcements: tuple[msgspec.Raw, ...]


class NatsBus:
    """Publishes to one subject per database; entered, it is connected or trying to be.

    What this process announces it handles at once, without NATS.

    Args:
        subject: returns the subject, asked for with every connection.
    """

    def __init__(
        self,
        address: NatsAddress,
        subject: Callable[[], Awaitable[str]],
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self._address = address
        self._subject = subject
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._publisher = uuid4().hex
        self._number = 0
        self._numbers: LRUCache[str, int] = LRUCache(_MAX_PUBLISHERS)
        self._waiting: deque[_Message] = deque(maxlen=_MAX_WAITING)
        self._receiver: AnnouncementReceiver | None = None
        self._problem: str | None = "it was not reached yet"
        self._missed = False  # whether announcements may have been missed
        self._refusal: Exception | None = None
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()  # set after the first attempt to connect
        self._loop: SupervisedLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("nats", self._stay_connected)
        await self._tried.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()

    @property
    def trusted(self) -> bool:
        """Whether announcements arrive, and all that were missed have been found."""
        return self._problem is None

    def health(self) -> dict[str, str]:
        """Return whether NATS carries announcements at the moment, and why not."""
        problem = self._problem
        outcome = (
            OK if problem is None else degraded(f"reading versions instead of NATS: {problem}")
        )
        return {"announcements": outcome}

    async def commit(self, raw: Any, announcements: Sequence[msgspec.Struct]) -> None:
        """Commit a transaction, then publish what it announces without waiting for NATS."""
        await raw.execute("COMMIT")
        if announcements:
            self._publish(announcements)

    @asynccontextmanager
    async def receiving(self, receiver: AnnouncementReceiver) -> AsyncIterator[None]:
        """Pass on announcements, and catch up when some may have been missed."""
        self._receiver = receiver
        try:
            yield
        finally:
            self._receiver = None

    def _publish(self, announcements: Sequence[msgspec.Struct]) -> None:
        self._number += 1
        encoded = tuple(msgspec.Raw(msgspec.json.encode(item)) for item in announcements)
        if len(self._waiting) == _MAX_WAITING:  # the oldest is dropped, which its number reveals
            self._metrics.announcements.labels("dropped").inc()
        self._waiting.append(_Message(self._publisher, self._number, encoded))
        self._wake.set()
        for announcement in encoded:
            self._handle(announcement, own=True)

    def _handle(self, announcement: msgspec.Raw, *, own: bool) -> None:
        """Pass an announcement on; if that fails, what it should have told is read."""
        if self._receiver is None:
            return
        try:
            self._receiver.deliver_encoded(bytes(announcement), own=own)
        except Exception:  # a defect in a listener; the transaction is committed all the same
            _log.exception("announcement.failed")
            self._distrust("an announcement could not be handled")

    def _distrust(self, problem: str) -> None:
        self._problem, self._missed = problem, True
        self._wake.set()

    async def _stay_connected(self, loop: SupervisedLoop) -> None:
        """Connect again whenever the connection is lost, however long that takes."""
        failures = 0
        while True:
            problem = "the connection was lost"
            try:
                async with self._connected() as client:
                    await self._serve(client)
                failures = 0
            except _RETRYABLE as error:
                failures += 1
                problem = problem_of(error)
                _log.warning("nats.unavailable", problem=problem, reason=type(error).__name__)
            self._distrust(problem)
            self._tried.set()
            loop.report_progress()  # slower, but not unready
            await self._clock.sleep(restart_delay_s(failures or 1, 0.5))

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        subject, self._refusal = await self._subject(), None
        client = await self._address.connect(self._on_error, self._on_lost)
        try:
            await client.subscribe(subject, cb=self._on_message)
            await client.flush(_FLUSH_S)  # from here on, nothing is missed
            yield client
        finally:
            with suppress(*_RETRYABLE):
                await self._send(client, subject)
                if client.is_connected:
                    await client.flush(_FLUSH_S)
            await close(client)

    async def _serve(self, client: Client) -> None:
        """Publish and catch up as needed, until the connection is lost."""
        subject = await self._subject()
        while client.is_connected:
            self._wake.clear()
            if self._refusal is not None:
                raise self._refusal
            await self._send(client, subject)
            if self._problem is not None:
                missed, self._missed = self._missed, False
                if missed and self._receiver is not None:
                    self._metrics.announcements.labels("gap").inc()
                    await self._receiver.catch_up()
                if not self._missed:
                    self._problem = None
            self._tried.set()
            if not self._wake.is_set():
                await self._wake.wait()

    async def _send(self, client: Client, subject: str) -> None:
        while self._waiting and client.is_connected:
            message = self._waiting.popleft()
            await client.publish(subject, msgspec.json.encode(message))
            self._metrics.announcements.labels("published").inc(len(message.announcements))

    async def _on_message(self, received: Msg) -> None:
        try:
            message = msgspec.json.decode(received.data, type=_Message)
        except msgspec.DecodeError:
            _log.warning("announcement.unknown", bytes=len(received.data))
            return
        last = self._numbers.get(message.publisher)
        if last is not None and message.number > last + 1:
            self._metrics.announcements.labels("lost").inc(message.number - last - 1)
            self._distrust("messages were lost")
        self._numbers[message.publisher] = max(message.number, last or 0)
        for announcement in message.announcements:
            self._handle(announcement, own=False)

    async def _on_error(self, error: Exception) -> None:
        """Handle what does not end the connection by itself."""
        if isinstance(error, nats.errors.SlowConsumerError):
            self._distrust("messages were dropped")
        elif is_refusal(error):  # to subscribe or publish: nothing would arrive
            self._refusal = error
            self._wake.set()

    async def _on_lost(self) -> None:
        self._wake.set()
