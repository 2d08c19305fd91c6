"""Companions and their documents; decodes settings columns."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from pgvector import HalfVector

from foremind.domain.announcements import CompanionChanged, LibraryChanged
from foremind.domain.companion import Chunk, Companion, CompanionFile, Document
from foremind.domain.errors import NOT_JSON, NotFound
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings
from foremind.runtime.caches import erasable_cache
from foremind.storage.database import Database, DatabaseConnection

MAX_CHUNKS = 40_000  # searched per companion; about 8,000 pages


class DocumentStore:
    """Reads and writes the documents of one companion at a time."""

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    async def documents_of(self, companion_id: int) -> list[Document]:
        """Return a companion's documents."""
        rows = await self._database.rows("documents_of_companion", companion_id)
        return [Document(**dict(row)) for row in rows]

    async def add(
        self, companion_id: int, title: str, media_type: str, chunks: Sequence[str], now: datetime
    ) -> int:
        """Store a document and its chunks, which are embedded later; return its id."""
        async with self._database.transaction() as connection:
            row = await connection.row(
                "insert_document",
                companion_id,
                title,
                media_type,
                len(chunks),
                now,
            )
            if row is None:
                raise NotFound("companion: expected a known companion", param="companion")
            await connection.execute("insert_chunks", row["id"], companion_id, list(chunks))
            await _announce(connection, companion_id)
            return int(row["id"])

    async def remove(self, companion_id: int, document_id: int) -> None:
        """Delete a document.

        Raises:
            NotFound: the companion has no document with that id.
        """
        async with self._database.transaction() as connection:
            if await connection.row("delete_document", document_id, companion_id) is None:
                raise NotFound("document: expected the id of a document here", param="document")
            await _announce(connection, companion_id, deleted=True)

    async def chunks(self, companion_id: int) -> list[Chunk]:
        """Return the chunks of a companion's documents, at most `MAX_CHUNKS`."""
        rows = await self._database.rows("chunks_of_companion", companion_id, MAX_CHUNKS)
        return await asyncio.to_thread(lambda: [Chunk(**dict(row)) for row in rows])

    async def documents_to_embed(self) -> list[tuple[int, int]]:
        """Return the ids of documents with chunks to embed, and of their companions."""
        rows = await self._database.rows("unfinished_documents")
        return [(row["id"], row["companion_id"]) for row in rows]

    async def chunks_to_embed(self, document_id: int) -> list[tuple[int, str]]:
        """Return id and text of a document's chunks that have no vector."""
        rows = await self._database.rows("chunks_to_embed", document_id)
        return [(row["id"], row["content"]) for row in rows]

    async def store_chunk_vector(self, chunk_id: int, vector: npt.NDArray[np.float32]) -> None:
        """Store the vector of a chunk."""
        await self._database.execute(
            "store_chunk_vector", chunk_id, HalfVector(vector), self._fingerprint
        )

    async def announce_embedded(self, companion_id: int) -> None:
        """Announce that a document of a companion has its vectors."""
        async with self._database.transaction() as connection:
            await _announce(connection, companion_id)


async def _announce(
    connection: DatabaseConnection, companion_id: int, *, deleted: bool = False
) -> None:
    raised = await connection.row("raise_documents_version", companion_id)
    if raised is not None:
        connection.announce(LibraryChanged(companion_id, raised["version"], deleted))


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
        return [companion_of(row) for row in await self._database.rows("list_companions")]

    async def names(self) -> dict[str, str]:
        """Return what all companions that are not retired are called, by slug."""
        return {row["slug"]: row["name"] for row in await self._database.rows("companion_names")}

    async def find(self, slug: str) -> Companion:
        """Return the companion with this slug.

        Raises:
            NotFound: there is none.
        """
        row = await self._database.row("find_companion", slug)
        if row is None:
            raise NotFound("companion: expected the slug of a known companion", param="companion")
        return companion_of(row)

    async def find_open(self, slug: str) -> Companion:
        """Return the companion with this slug, with which sessions may be opened.

        Raises:
            NotFound: there is none, or it has been retired.
        """
        companion = await self.find(slug)
        if companion.retired:
            raise NotFound("companion: this companion has been retired", param="companion")
        return companion

    async def named(self, slugs: Sequence[str]) -> dict[str, Companion]:
        """Return those of some companions that exist by slug, without their cards."""
        rows = await self._database.rows("companions_named", [*slugs])
        return {row["slug"]: companion_of(row) for row in rows}

    async def get(self, companion_id: int) -> Companion | None:
        """Return a companion by id, retired or not; None if there is none."""
        row = await self._database.row("get_companion", companion_id)
        return None if row is None else companion_of(row)

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
            stored = companion_of(row)
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


@erasable_cache(_CACHED)
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


def companion_of(row: Any) -> Companion:
    """Decode a row of companions."""
    values = dict(row)
    card = _card_from_json(values.pop("card", None))
    companion = _cached_companion(**values)
    return companion if card is None else replace(companion, card=card)


@erasable_cache(_CACHED)
def _cached_companion(settings: str, **values: Any) -> Companion:
    return Companion(settings=settings_from_json(settings), **values)


@erasable_cache(_CACHED_CARDS)
def _card_from_json(raw: str | None) -> Mapping[str, Any] | None:
    """Decode a card column; one that somebody has broken by hand is as good as none."""
    try:
        card = None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return card if isinstance(card, dict) else None
