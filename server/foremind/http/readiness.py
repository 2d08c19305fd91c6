"""Whether this server can do its work now."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from foremind.embedding.queue import Priority
from foremind.embedding.service import EmbeddingService
from foremind.errors import ForemindError
from foremind.storage.database import Database
from foremind.storage.migrations import load_migrations

_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Checks the embedding model, the database and its schema; answers within seconds."""

    database: Database
    embedder: EmbeddingService

    async def check(self) -> dict[str, str]:
        """Return `ok` or what is wrong, for `model`, `database` and `migrations`."""
        model, database, migrations = await asyncio.gather(
            self._outcome(self._model()),
            self._outcome(self._database()),
            self._outcome(self._migrations()),
        )
        return {"model": model, "database": database, "migrations": migrations}

    async def _model(self) -> str:
        await self.embedder.embed_query("ready", Priority.PAUSE)
        return "ok"

    async def _database(self) -> str:
        await self.database.value("ping")
        return "ok"

    async def _migrations(self) -> str:
        applied = {row["number"] for row in await self.database.rows("applied_migrations")}
        missing = [each for each in load_migrations() if each.number not in applied]
        return f"{len(missing)} pending: run foremind db migrate" if missing else "ok"

    async def _outcome(self, check: Awaitable[str]) -> str:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await check
        except TimeoutError:
            return "no answer in time"
        except ForemindError as error:
            return error.message
