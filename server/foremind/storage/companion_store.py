"""Companions in the database, and settings as they are stored."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import structlog

from foremind.domain.announcements import CompanionChanged
from foremind.domain.companion import (
    Companion,
    CompanionFile,
    CompanionSettings,
    RelationshipSettings,
)
from foremind.domain.errors import NOT_JSON, NotFound
from foremind.domain.setting_bounds import problem_with, salvaged
from foremind.storage.database import Database

_SHARED = 256  # companions, and settings, that all who ask share: they are never changed

_log = structlog.get_logger("foremind.domain.companion")


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

    async def get(self, companion_id: int) -> Companion | None:
        """Return the companion of an id, retired or not, if there is one."""
        row = await self._database.row("get_companion", companion_id)
        return None if row is None else _companion(row)

    async def put(self, companion: CompanionFile) -> Companion:
        """Create or replace a companion; its version rises where something changed.

        Every process is told.
        """
        async with self._database.transaction() as connection:
            row = await connection.row(
                "put_companion",
                companion.slug,
                companion.name,
                companion.greeting,
                companion.persona,
                msgspec.json.encode(companion.settings).decode(),
            )
            stored = _companion(row)
            await connection.announce(CompanionChanged(stored.id))
        return stored

    async def retire(self, slug: str, now: datetime) -> None:
        """Let nobody talk with a companion any more, until it is put again.

        Raises:
            NotFound: there is none that can be talked with.
        """
        async with self._database.transaction() as connection:
            row = await connection.row("retire_companion", slug, now)
            if row is None:
                raise NotFound(
                    "companion: expected the slug of a known companion", param="companion"
                )
            await connection.announce(CompanionChanged(row["id"]))


@lru_cache(_SHARED)
def settings_from_json(raw: str) -> CompanionSettings:
    """Read a column of settings; of what is wrong there, the wider level's holds, with a warning.

    Whoever reaches the database may have written anything; nothing may stop working by it.
    """
    try:
        given = msgspec.json.decode(raw)
    except NOT_JSON:
        given = None
    kept, dropped = salvaged(given, _usable)
    if dropped:
        known = set(CompanionSettings.__struct_fields__)
        names = {each.partition(".")[0] for each in dropped}
        # Names of settings only: anything else there may be something that somebody typed.
        _log.warning("settings.unusable", settings=sorted(names & known), others=len(names - known))
    return msgspec.convert(kept, CompanionSettings)


def relationship_settings(row: Mapping[str, Any]) -> RelationshipSettings:
    """Read the columns `operator_settings` and `settings` of a relationship."""
    return RelationshipSettings(
        operator=settings_from_json(row["operator_settings"]),
        user=settings_from_json(row["settings"]),
    )


def without_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other columns of such a row."""
    return {
        name: value for name, value in row.items() if name not in ("settings", "operator_settings")
    }


def _usable(given: object) -> bool:
    try:
        return problem_with(msgspec.convert(given, CompanionSettings)) is None
    except (msgspec.ValidationError, OverflowError, RecursionError):
        return False


def forget_settings() -> None:
    """Drop the settings that are remembered as they were read."""
    settings_from_json.cache_clear()
    _shared.cache_clear()


def _companion(row: Any) -> Companion:
    return _shared(**row)


@lru_cache(_SHARED)
def _shared(settings: str, **values: Any) -> Companion:
    return Companion(settings=settings_from_json(settings), **values)
