"""Imports relationships: exports, also of another embedding model, and other programs' files."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import msgspec

from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage
from foremind.domain.export_file import Export, ExportedSession, ExportedTurn
from foremind.domain.memory import MemoryText
from foremind.domain.policy import policy_for
from foremind.domain.record import (
    MAX_CONTENT_CHARS,
    MAX_LIST_ITEMS,
    MAX_RECORDS,
    MAX_REVISIONS,
    MAX_TITLE_CHARS,
    STATUSES,
    VECTOR_SEARCHED_LAYERS,
    search_text,
)
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings, Settings
from foremind.domain.storable_text import check_storable
from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.domain.user import (
    LANGUAGE_EXPECTED,
    TIME_ZONE_EXPECTED,
    UTC,
    User,
    language_of,
    time_zone_of,
)
from foremind.llm.chat_model import MAX_CHARS_PER_TOKEN
from foremind.memory import foreign_chats
from foremind.memory.contextual_embedding import (
    WINDOW_RADIUS,
    Vector,
    contextual_text,
    standalone_text,
)
from foremind.memory.foreign_chats import AskedReading, ForeignPast, ReadPart
from foremind.memory.ingest import MemoryIngester
from foremind.memory.profile import facts_in
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.fair_queue import ConnectionQueue
from foremind.runtime.reader_process import reading
from foremind.runtime.supervision import run_or_offload
from foremind.storage.stores import Stores
from foremind.storage.transfer_store import CreatedRelationship, TransferStore

MAX_TURNS = 50_000  # of one relationship
#: Maximum length of the lists of a file; any other list has at most MOST_LISTED elements.
MAX_ELEMENTS: Mapping[str, int] = {
    "sessions": MAX_TURNS,
    "turns": MAX_TURNS,
    "memories": MAX_TURNS,
    "memories.again": MAX_TURNS,
    "records": MAX_RECORDS,
    "records.turns": MAX_TURNS,
    "records.sources": MAX_RECORDS,
    "revisions": MAX_RECORDS * MAX_REVISIONS,
    "changes": 2 * MAX_TURNS,
    "audit": 4 * MAX_TURNS,
    "progress.dismissed": 2 * MAX_RECORDS,
    "progress.remade": MAX_RECORDS,
    "progress.remade.turns": MAX_TURNS,
}
_CONTENT = frozenset({"records.content", "revisions.content"})
_UTTERANCES = frozenset({"turns.text", "memories.content"})


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """Maximum length of texts in characters: of users' messages and of companions' replies."""

    user_chars: int
    companion_chars: int

    @classmethod
    def of(cls, settings: Settings) -> "ImportLimits":
        """Return the limits of a server; a reply may quote its message."""
        reply_chars = settings.llm_max_tokens * MAX_CHARS_PER_TOKEN
        return cls(settings.max_text_chars, settings.max_text_chars + reply_chars)

    def check(self, part: object, path: str) -> None:
        """Make sure that a part of a file can be stored, and has no text or list over its limit.

        Args:
            part: a decoded file, or an element of one of its lists.
            path: its name, as in `turns[7]`; empty for a whole file.

        Raises:
            InvalidMessage: naming the field and what was expected.
        """
        check_storable(part, path)
        self._check(part, path, path.partition("[")[0], "user")

    def _check(self, part: object, path: str, kind: str, speaker: str) -> None:
        """Check a part recursively; `kind` is its path without positions."""
        if isinstance(part, str):
            max_chars = self._max_chars(kind, speaker)
            if len(part) > max_chars:
                raise InvalidMessage(
                    f"{path}: expected at most {max_chars} characters, got {len(part)}", param=path
                )
        elif isinstance(part, list | tuple):
            max_elements = MAX_ELEMENTS.get(kind, MAX_LIST_ITEMS)
            if len(part) > max_elements:
                raise InvalidMessage(
                    f"{path}: expected at most {max_elements} elements, got {len(part)}",
                    param=path,
                )
            for position, element in enumerate(part):
                self._check(element, f"{path}[{position}]", kind, speaker)
        elif isinstance(part, msgspec.Struct) and not isinstance(part, CompanionSettings):
            # Settings have limits of their own, which are checked when they are decoded.
            speaker = getattr(part, "speaker", speaker)
            for name in part.__struct_fields__:
                value = getattr(part, name)
                if value is not None and not isinstance(value, int | float | datetime):
                    self._check(
                        value,
                        f"{path}.{name}" if path else name,
                        f"{kind}.{name}" if kind else name,
                        speaker,
                    )

    def _max_chars(self, kind: str, speaker: str) -> int:
        if kind in _UTTERANCES:
            return self.companion_chars if speaker == "companion" else self.user_chars
        # What was pinned may be as long as the message that asked for it.
        return max(MAX_CONTENT_CHARS, self.user_chars) if kind in _CONTENT else MAX_TITLE_CHARS


_MAX_READ_S = 60.0  # files of other programs; the largest that are taken need 10
_MAX_RUNNING = 2  # imports of this process at once: each holds a file, and vectors
_MAX_WAITING = 1  # further imports of one user
_WAIT_TIMEOUT_S = 600.0  # as long as a large import takes


class RelationshipImporter:
    """Stores what an export, or another program's files, tell of a user and a companion."""

    def __init__(
        self,
        store: TransferStore,
        stores: Stores,
        embedder: EmbeddingService,
        ingester: MemoryIngester,
        settings: Settings,
    ) -> None:
        self._store = store
        self._users = stores.users
        self._quota = stores.quota
        self._embedder = embedder
        self._ingester = ingester
        self._settings = settings
        self._running = ConnectionQueue(_MAX_RUNNING, 1, _MAX_WAITING, _WAIT_TIMEOUT_S)

    async def restore(
        self,
        user_id: str,
        companion: Companion,
        export: Export,
        own: RelationshipSettings,
        actor: str,
        now: datetime,
    ) -> int:
        """Restore an export for a user; return the relationship's id.

        Args:
            own: the relationship's settings.
            actor: who requested it, for the audit trail.

        Raises:
            InvalidMessage: the file contradicts itself.
            Conflict: the user has already talked with this companion.
            StorageFull: the user has no room for it.
            RateLimited: the user has too many imports in progress.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        in_force = effective_settings(companion.settings, own, self._settings)
        storage = policy_for(in_force, self._settings).storage
        async with self._running.turn(user_id):
            await self._check(export, await self._users.get(user_id))
            created = await self._create(
                export, companion.name, read_in_exchange=storage.read_in_exchange
            )
            return await self._store.write(user_id, companion.id, export, own, created, actor, now)

    async def import_chats(
        self,
        files: Sequence[bytes],
        user_id: str,
        name: str | None,
        companion: Companion,
        actor: str,
        now: datetime,
    ) -> tuple[int, ForeignPast]:
        """Store what files of other programs tell; return the relationship's id, and what that is.

        What was said is remembered in the background, as if it had been said here.

        Args:
            name: of the user, if it is stated.
            actor: who requested it, for the audit trail.

        Raises:
            InvalidMessage: nothing of the files can be read.
            TooLarge: they exceed a bound.
            ForemindError: as `restore`.
        """
        async with self._running.turn(user_id):
            known = await self._users.get(user_id)
            name = name if known is None else known.name
            zone = UTC.key if known is None else known.time_zone
            past = await self._read_chats(files, (name, user_id), zone, companion, now)
            await self._check(past.export, known)
            id_ = await self._store.write(
                user_id,
                companion.id,
                past.export,
                RelationshipSettings(),
                CreatedRelationship({}, {}, {}, {}, ()),
                actor,
                now,
                past.program,
            )
            return id_, past

    async def _read_chats(
        self,
        files: Sequence[bytes],
        user: tuple[str | None, str],
        zone: str,
        companion: Companion,
        now: datetime,
    ) -> ForeignPast:
        """Return what files tell, which a process of its own reads.

        Args:
            user: the name, if it is known, and the id.

        Raises:
            InvalidMessage, TooLarge: as `read_foreign`.
        """
        limits = ImportLimits.of(self._settings)
        asked = AskedReading(
            tuple(map(len, files)),
            companion.slug,
            user,
            {"user": limits.user_chars, "companion": limits.companion_chars},
            policy_for(companion.settings, self._settings).layers.session.total_seconds(),
            zone,
            now,
            MAX_TURNS,
        )
        given = [msgspec.json.encode(asked) + b"\n", *files]
        async with reading(foreign_chats.__name__, given=given, max_s=_MAX_READ_S) as lines:
            first = msgspec.json.decode(lines.readline(), type=ReadPart)
            assert first.export is not None
            sessions: list[ExportedSession] = []
            turns: list[ExportedTurn] = []
            for line in lines:
                part = msgspec.json.decode(line, type=ReadPart)
                sessions += part.sessions
                turns += part.turns
                await asyncio.sleep(0)
        export = msgspec.structs.replace(first.export, sessions=sessions, turns=turns)
        return ForeignPast(first.program, export, first.notices)

    async def _check(self, export: Export, known: User | None) -> None:
        """Check that an export is whole, and that its user has room for it.

        Raises:
            InvalidMessage, StorageFull, StorageUnavailable: see `restore`.
        """
        await asyncio.to_thread(check, export)
        text_bytes = await asyncio.to_thread(
            lambda: sum(len(turn.text.encode()) for turn in export.turns)
        )
        user = None if known is None else known.id
        await self._quota.admit(user, text_bytes, len(export.turns))

    async def _create(
        self, export: Export, companion_name: str, *, read_in_exchange: bool
    ) -> CreatedRelationship:
        """Compute everything that an export does not contain."""
        embed = self._embedder.embed_passage
        texts = _text_by_turn(export)
        turn_vectors = {
            turn.id: await embed(texts[turn.id])
            for turn in export.turns
            if turn.judged and texts[turn.id].strip()
        }
        names = await self._ingester.name_vectors(export.user_name, companion_name)
        memories = await _memory_texts(
            export, texts, turn_vectors, names, read_in_exchange=read_in_exchange
        )
        records = {
            record.id: await embed(search_text(record.title, record.content))
            for record in export.records
            if record.layer in VECTOR_SEARCHED_LAYERS
        }
        facts = {
            memory.id: await run_or_offload(len(memory.content), partial(facts_in, memory.content))
            for memory in export.memories
        }
        expired = {turn.id for turn in export.turns if not turn.text.strip()}
        return CreatedRelationship(turn_vectors, memories, records, facts, expired)


async def _memory_texts(
    export: Export,
    texts: Mapping[str, str],
    turn_vectors: Mapping[str, Vector],
    names: Mapping[Speaker, Vector],
    *,
    read_in_exchange: bool,
) -> dict[str, MemoryText]:
    """Return the texts by which memories are found, by memory id."""
    memory_of = {memory.turn: memory.id for memory in export.memories}
    memories: dict[str, MemoryText] = {}
    for session_turns in _by_session(export).values():
        # Erased turns have no text, and are no neighbours.
        exported = [turn for turn in session_turns if texts[turn.id].strip()]
        turns = [
            ExchangeTurn(
                int(turn.id), turn.speaker, texts[turn.id], turn_vectors.get(turn.id), None
            )
            for turn in exported
        ]
        for position, (source, turn) in enumerate(zip(exported, turns, strict=True)):
            memory_id = memory_of.get(source.id)
            if memory_id is None or turn.vector is None:
                continue
            await asyncio.sleep(0)  # a memory takes a millisecond or more where texts are long
            memories[memory_id] = await (
                _contextual_text(turns, position, names)
                if read_in_exchange and source.session is not None
                else run_or_offload(len(turn.content), partial(standalone_text, turn, turn.vector))
            )
    return memories


async def _contextual_text(
    turns: Sequence[ExchangeTurn], position: int, names: Mapping[Speaker, Vector]
) -> MemoryText:
    window = turns[max(0, position - WINDOW_RADIUS) : position + WINDOW_RADIUS + 1]
    chars = sum(len(turn.content) for turn in window)
    return await run_or_offload(chars, lambda: contextual_text(turns, position, names))


def check(export: Export) -> None:
    """Make sure that everything an export refers to is in it.

    Raises:
        InvalidMessage: naming the field.
    """
    zone = time_zone_of(export.time_zone)
    if zone is None or zone.key != export.time_zone:
        raise InvalidMessage(TIME_ZONE_EXPECTED, param="time_zone")
    if export.language is not None and language_of(export.language) != export.language:
        raise InvalidMessage(LANGUAGE_EXPECTED, param="language")
    for name, max_elements in MAX_ELEMENTS.items():
        if "." not in name and len(getattr(export, name)) > max_elements:
            raise InvalidMessage(f"{name}: expected at most {max_elements}", param=name)
    turns: Mapping[str, ExportedTurn] = {turn.id: turn for turn in export.turns}
    if len(turns) != len(export.turns):
        raise InvalidMessage("turns: expected every id once", param="turns")
    _check_turns(export)
    _check_statuses(export)
    _check_memories(export, turns)


def _check_turns(export: Export) -> None:
    sessions = {session.id for session in export.sessions}
    answered: set[str | None] = set()
    events: set[str | None] = {None}
    for place, turn in enumerate(export.turns):
        _check_event(f"turns[{place}]", turn, events)
        events.add(turn.event_id)
        if turn.session is not None and turn.session not in sessions:
            raise _invalid(f"turns[{place}].session", "a session of the file")
        if (turn.speaker == "user") != (turn.message_id is not None):
            raise _invalid(f"turns[{place}].message_id", "one for each turn of the user only")
        if turn.reply_to is not None and (turn.speaker == "user" or turn.reply_to in answered):
            raise _invalid(
                f"turns[{place}].reply_to", "it on companions' turns, one reply to each turn"
            )
        answered.add(turn.reply_to)


def _invalid(name: str, expected: str) -> InvalidMessage:
    return InvalidMessage(f"{name}: expected {expected}", param=name)


def _check_event(name: str, turn: ExportedTurn, earlier: Collection[str | None]) -> None:
    """Check that a turn is either of a session or an event, and no event comes twice.

    Args:
        name: of the turn.
        earlier: the ids of the events before it.

    Raises:
        InvalidMessage: naming the field.
    """
    kinds = {turn.session is None, turn.event_id is not None, turn.event_type is not None}
    if len(kinds) > 1:
        raise _invalid(f"{name}.event_id", "it and event_type for each turn without a session only")
    if turn.event_id is not None and (
        turn.event_id in earlier or turn.speaker == "user" or turn.reply_to is not None
    ):
        raise _invalid(
            f"{name}.event_id", "every id once, on companions' turns that answer nothing"
        )


def _check_statuses(export: Export) -> None:
    for position, record in enumerate(export.records):
        if record.details.status not in ("", *STATUSES.get(record.layer, ())):
            raise _invalid(f"records[{position}].details.status", "a status of the record's layer")


def _check_memories(export: Export, turns: Mapping[str, ExportedTurn]) -> None:
    seen: set[str] = set()
    for place, memory in enumerate(export.memories):
        name = f"memories[{place}]"
        if not memory.content.strip():
            raise _invalid(f"{name}.content", "text that is not blank")
        if (memory.happened_from is None) != (memory.happened_to is None):
            raise _invalid(f"{name}.happened_to", "both ends or neither")
        if memory.turn in turns and not turns[memory.turn].judged:
            raise _invalid(f"{name}.turn", "a judged turn")
        for source in (memory.turn, *memory.again):
            if source not in turns or source in seen:
                part = "turn" if source == memory.turn else "again"
                raise _invalid(f"{name}.{part}", "a turn of the file, once")
            seen.add(source)


def _text_by_turn(export: Export) -> dict[str, str]:
    """Return the text of each turn; for an expired one, that of its memory."""
    remembered = {memory.turn: memory.content for memory in export.memories}
    return {
        turn.id: turn.text if turn.text.strip() else remembered.get(turn.id, "")
        for turn in export.turns
    }


def _by_session(export: Export) -> dict[str | None, list[ExportedTurn]]:
    sessions: dict[str | None, list[ExportedTurn]] = {}
    for turn in export.turns:
        sessions.setdefault(turn.session, []).append(turn)
    return sessions
