"""Companions in the database."""

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from foremind.companions import Companion, CompanionFile, CompanionSettings
from foremind.errors import NotFound
from foremind.storage.database import Database

_SHARED = 256  # companions, and settings, that all who ask share: they are never changed


class CompanionStore:
    """Reads and writes companions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> list[Companion]:
        """Return every companion by slug."""
        return [_companion(row) for row in await self._database.rows("list_companions")]

    async def find(self, slug: str) -> Companion:
        """Return the companion called `slug`.

        Raises:
            NotFound: there is none.
        """
        row = await self._database.row("find_companion", slug)
        if row is None:
            raise NotFound("companion: expected the slug of a known companion", param="companion")
        return _companion(row)

    async def put(self, companion: CompanionFile) -> Companion:
        """Create or replace a companion; its version rises where something changed."""
        row = await self._database.row(
            "put_companion",
            companion.slug,
            companion.name,
            companion.greeting,
            companion.persona,
            msgspec.json.encode(companion.settings).decode(),
        )
        return _companion(row)

    async def retire(self, slug: str, now: datetime) -> None:
        """Let nobody talk with a companion any more, until it is put again.

        Raises:
            NotFound: there is none that can be talked with.
        """
        if await self._database.row("retire_companion", slug, now) is None:
            raise NotFound("companion: expected the slug of a known companion", param="companion")


@lru_cache(_SHARED)
def settings_from_json(raw: str) -> CompanionSettings:
    """Read the `settings` column."""
    return msgspec.json.decode(raw, type=CompanionSettings)


def _companion(row: Any) -> Companion:
    return _shared(**row)


@lru_cache(_SHARED)
def _shared(settings: str, **values: Any) -> Companion:
    return Companion(settings=settings_from_json(settings), **values)
