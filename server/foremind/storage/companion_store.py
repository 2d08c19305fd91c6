"""Stores companions, and decodes settings columns."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

import msgspec
import structlog

from foremind.domain.announcements import CompanionChanged
from foremind.domain.companion import Companion, CompanionFile
from foremind.domain.errors import NOT_JSON, NotFound
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings
from foremind.storage.database import Database

_UNUSABLE = object()
_CACHED = 256  # decoded companions and settings, which are immutable and shared
_CACHED_CARDS = 32  # decoded cards, of at most 2 MB each as stored

_log = structlog.get_logger("foremind.domain.companion")


class CompanionStore:
    """Reads and writes companions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> list[Companion]:
        """Return all companions that are not retired, by slug; of cards only the nickname."""
        return [_companion(row) for row in await self._database.rows("list_companions")]

    async def find(self, slug: str) -> Companion:
        """Return the companion with this slug.

        Raises:
            NotFound: there is none.
        """
        row = await self._database.row("find_companion", slug)
        if row is None:
            raise NotFound("companion: expected the slug of a known companion", param="companion")
        return _companion(row)

    async def get(self, companion_id: int) -> Companion | None:
        """Return a companion by id, retired or not; None if there is none."""
        row = await self._database.row("get_companion", companion_id)
        return None if row is None else _companion(row)

    async def put(self, companion: CompanionFile, *, keep_settings: bool = False) -> Companion:
        """Create or replace a companion and announce it; its version rises if anything changed.

        Args:
            keep_settings: whether a companion that exists keeps its own.
        """
        async with self._database.transaction() as connection:
            row = await connection.row(
                "put_companion",
                companion.slug,
                companion.name,
                companion.greeting,
                companion.persona,
                msgspec.json.encode(companion.settings).decode(),
                None if companion.card is None else msgspec.json.encode(companion.card).decode(),
                keep_settings,
            )
            stored = _companion(row)
            connection.announce(CompanionChanged(stored.id, stored.version))
        return stored

    async def retire(self, slug: str, now: datetime) -> None:
        """Retire a companion: it accepts no sessions until it is put again.

        Raises:
            NotFound: there is none, or it is retired already.
        """
        async with self._database.transaction() as connection:
            row = await connection.row("retire_companion", slug, now)
            if row is None:
                raise NotFound(
                    "companion: expected the slug of a known companion", param="companion"
                )
            connection.announce(CompanionChanged(row["id"], row["version"]))


@lru_cache(_CACHED)
def settings_from_json(raw: str) -> CompanionSettings:
    """Decode a settings column.

    Invalid values are dropped with a warning, so that those of the wider level apply: somebody may
    have edited the database by hand, and that must not stop anything.
    """
    try:
        stored = msgspec.json.decode(raw)
    except NOT_JSON:
        stored = None
    valid, dropped = _salvage(stored)
    if dropped:
        known = set(CompanionSettings.__struct_fields__)
        names = {path.partition(".")[0] for path in dropped}
        # Only names of settings are logged: any other key may be private text.
        _log.warning("settings.unusable", settings=sorted(names & known), others=len(names - known))
    return msgspec.convert(valid, CompanionSettings)


def relationship_settings(row: Mapping[str, Any]) -> RelationshipSettings:
    """Decode the columns `operator_settings` and `settings` of a relationship."""
    return RelationshipSettings(
        operator=settings_from_json(row["operator_settings"]),
        user=settings_from_json(row["settings"]),
    )


def without_settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row other than these two."""
    return {
        name: value for name, value in row.items() if name not in ("settings", "operator_settings")
    }


def _salvage(given: object) -> tuple[dict[str, Any], list[str]]:
    """Return the usable parts of stored settings, and the paths of the rest."""
    dropped: list[str] = []

    def usable_part(value: object, wrap: Callable[[object], object], path: str) -> object:
        if _is_valid(wrap(value)):
            return value
        if isinstance(value, dict):
            members = {
                name: usable_part(member, partial(_wrap_member, wrap, name), f"{path}.{name}")
                for name, member in value.items()
            }
            kept = {name: member for name, member in members.items() if member is not _UNUSABLE}
            if kept and _is_valid(wrap(kept)):
                return kept
        dropped.append(path.lstrip("."))
        return _UNUSABLE

    kept = usable_part(given, lambda value: value, "")
    return (kept if isinstance(kept, dict) else {}), dropped


def _wrap_member(wrap: Callable[[object], object], name: str, value: object) -> object:
    return wrap({name: value})


def _is_valid(stored: object) -> bool:
    try:
        msgspec.convert(stored, CompanionSettings)
    except (msgspec.ValidationError, OverflowError, RecursionError):
        return False
    return True


def clear_settings_cache() -> None:
    """Clear the caches of decoded companions and settings."""
    settings_from_json.cache_clear()
    _cached_companion.cache_clear()
    _card_from_json.cache_clear()


def _companion(row: Any) -> Companion:
    values = dict(row)
    card = _card_from_json(values.pop("card", None))
    companion = _cached_companion(**values)
    return companion if card is None else replace(companion, card=card)


@lru_cache(_CACHED)
def _cached_companion(settings: str, **values: Any) -> Companion:
    return Companion(settings=settings_from_json(settings), **values)


@lru_cache(_CACHED_CARDS)
def _card_from_json(raw: str | None) -> Mapping[str, Any] | None:
    """Decode a card column; one that somebody has broken by hand is as good as none."""
    try:
        card = None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return card if isinstance(card, dict) else None
