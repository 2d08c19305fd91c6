"""The readiness check behind `/readyz`."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.domain.health import OK, degraded, without_details
from foremind.retrieval.embedding.service import EmbeddingService, Priority
from foremind.runtime.supervision import Supervisor
from foremind.storage.database import Database
from foremind.storage.migrations import load_migrations
from foremind.storage.probe import DatabaseProbe

_TIMEOUT_S = 2.0
_CACHE_S = 1.0

_log = structlog.get_logger("foremind.api")


class Readiness:
    """Checks everything that a message needs; answers within seconds.

    `database` is ok if it accepts writes, `background` if no background loop keeps failing
    (degraded, if it is only for a part of a sharded database), `server` unless it is draining,
    `announcements` while other processes are heard, and, where they are configured,
    `embedding_server` while it is used, `language_model` while its servers answer as expected and
    `keys` while their file can be read. The endpoint needs no token, so expensive checks run at
    most once a second; the others are always current.
    """

    def __init__(
        self,
        database: Database,
        probe: DatabaseProbe,
        embedder: EmbeddingService,
        supervisor: Supervisor,
        draining: Callable[[], bool],
        others: Callable[[], dict[str, str]],
        clock: Clock,
    ) -> None:
        self.database = database
        self.embedder = embedder
        self._probe = probe
        self._supervisor = supervisor
        self._draining = draining
        self._others = others
        self._clock = clock
        self._lock = asyncio.Lock()
        self._cached: tuple[float, dict[str, str]] | None = None

    async def check(self, *, details: bool) -> dict[str, str]:
        """Return `ok` or what is wrong, by name of the check; without details, only that it is."""
        async with self._lock:
            now = self._clock.monotonic()
            if self._cached is None or now - self._cached[0] >= _CACHE_S:
                self._cached = now, await self._run_checks()
            checks = self._cached[1]
            outcomes = {
                **checks,
                "background": self._background(database_is_ok=checks["database"] == OK),
                **self.embedder.health(),
                **self._others(),
            }
            if not details:
                outcomes = {name: without_details(outcome) for name, outcome in outcomes.items()}
            return outcomes | {"server": "draining" if self._draining() else OK}

    async def _run_checks(self) -> dict[str, str]:
        model, database, migrations = await asyncio.gather(
            self._outcome(self._model()),
            self._outcome(self._database()),
            self._outcome(self._migrations()),
        )
        return {"model": model, "database": database, "migrations": migrations}

    def _background(self, *, database_is_ok: bool) -> str:
        problems = self._supervisor.problems()
        if not problems:
            return OK
        described = "; ".join(f"{name}: {found.description}" for name, found in problems.items())
        codes = {found.code for found in problems.values()}
        # Players whose relationships are on other nodes go on talking, if this server stays.
        one_node = self.database.sharded and database_is_ok and codes == {StorageUnavailable.code}
        return (
            degraded(f"part of the database does not answer: {described}")
            if one_node
            else described
        )

    async def _model(self) -> str:
        await self.embedder.embed_query("ready", Priority.PAUSE)
        return OK

    async def _database(self) -> str:
        return await self._probe.outcome() or OK

    async def _migrations(self) -> str:
        applied = {row["number"] for row in await self.database.rows("applied_migrations")}
        missing = [migration for migration in load_migrations() if migration.number not in applied]
        return f"{len(missing)} pending: run foremind db migrate" if missing else OK

    async def _outcome(self, check: Awaitable[str]) -> str:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await check
        except TimeoutError:
            return "no answer in time"
        except ForemindError as error:
            return error.message
        except Exception:  # a bug: load balancers still get an answer
            _log.exception("readiness.failed")
            return "failed; see the log"
