"""Reads a relationship back that was written out, also by a server with another model."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from foremind.domain.clock import zone_named
from foremind.domain.companion import RelationshipSettings
from foremind.domain.errors import InvalidMessage
from foremind.domain.export_file import Export, ExportedTurn
from foremind.domain.memory import MemoryText
from foremind.domain.record import FOUND_BY_MEANING, STATUSES, found_by
from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.memory.context_window import REACH, Vector, read_alone, read_in_exchange
from foremind.memory.exclusive_facts import facts_in
from foremind.memory.import_limits import MOST_OF
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.offload import aside
from foremind.storage.fair_queue import ConnectionQueue
from foremind.storage.transfer_store import CreatedRelationship, TransferStore

_RUNNING = 2  # imports of this process at once: each holds a file, and vectors
_WAITING = 1  # more of one user
_PATIENCE_S = 600.0  # as long as a large one takes


class RelationshipImporter:
    """Makes an export's vectors anew, with this server's model, and stores it."""

    def __init__(
        self, store: TransferStore, embedder: EmbeddingService, rememberer: MemoryIngester
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._rememberer = rememberer
        self._running = ConnectionQueue(_RUNNING, 1, _WAITING, _PATIENCE_S)

    async def restore(
        self,
        user_id: str,
        companion: tuple[int, str],
        export: Export,
        own: RelationshipSettings,
        *,
        actor: str,
        in_exchange: bool,
        now: datetime,
    ) -> int:
        """Restore an export for a user; return the relationship's id.

        Args:
            companion: id and name.
            own: the relationship's settings.
            actor: who asked for it, for the audit trail.
            in_exchange: whether the companion's memories are read with those beside them.

        Raises:
            InvalidMessage: the file contradicts itself.
            Conflict: something was said with this companion already.
            RateLimited: the user imports too much at once.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        async with self._running.turn(user_id):
            await asyncio.to_thread(check, export)
            made = await self._made(export, companion[1], in_exchange=in_exchange)
            return await self._store.write(user_id, companion[0], export, own, made, actor, now)

    async def _made(
        self, export: Export, companion_name: str, *, in_exchange: bool
    ) -> CreatedRelationship:
        embed = self._embedder.embed_passage
        said = _said(export)
        turns = {
            each.id: await embed(said[each.id])
            for each in export.turns
            if each.judged and said[each.id].strip()
        }
        names = await self._rememberer.name_vectors(export.user_name, companion_name)
        memory_of = {memory.turn: memory.id for memory in export.memories}
        memories: dict[str, MemoryText] = {}
        for whole in _by_session(export).values():
            talk = [each for each in whole if said[each.id].strip()]  # what is gone does not count
            around = [
                ExchangeTurn(int(each.id), each.speaker, said[each.id], turns.get(each.id), None)
                for each in talk
            ]
            for position, (turn, each) in enumerate(zip(talk, around, strict=True)):
                memory_id = memory_of.get(turn.id)
                if memory_id is None or each.vector is None:
                    continue
                await asyncio.sleep(0)  # each is a millisecond or more where much was said
                memories[memory_id] = await (
                    _read_in_exchange(around, position, names)
                    if in_exchange
                    else aside(len(each.content), partial(read_alone, each, each.vector))
                )
        records = {
            record.id: await embed(found_by(record.title, record.content))
            for record in export.records
            if record.layer in FOUND_BY_MEANING
        }
        facts = {
            memory.id: await aside(len(memory.content), partial(facts_in, memory.content))
            for memory in export.memories
        }
        expired = {each.id for each in export.turns if not each.text.strip()}
        return CreatedRelationship(turns, memories, records, facts, expired)


async def _read_in_exchange(
    around: Sequence[ExchangeTurn], position: int, names: Mapping[Speaker, Vector]
) -> MemoryText:
    beside = around[max(0, position - REACH) : position + REACH + 1]
    chars = sum(len(each.content) for each in beside)
    return await aside(chars, lambda: read_in_exchange(around, position, names))


def check(export: Export) -> None:
    """Make sure that everything an export refers to is in it.

    Raises:
        InvalidMessage: naming the field.
    """
    zone_named(export.time_zone)
    for name, most in MOST_OF.items():
        if "." not in name and len(getattr(export, name)) > most:
            raise InvalidMessage(f"{name}: expected at most {most}", param=name)
    sessions = {session.id for session in export.sessions}
    turns: Mapping[str, ExportedTurn] = {each.id: each for each in export.turns}
    if len(turns) != len(export.turns):
        raise InvalidMessage("turns: expected every id once", param="turns")
    answered: set[str | None] = set()
    for turn in export.turns:
        if turn.session not in sessions:
            raise InvalidMessage("turns.session: expected a session of the file", param="turns")
        if (turn.speaker == "user") != (turn.message_id is not None):
            raise InvalidMessage(
                "turns.message_id: expected one for what a user said only", param="turns"
            )
        if turn.reply_to is not None and (turn.speaker == "user" or turn.reply_to in answered):
            raise InvalidMessage(
                "turns.reply_to: expected a companion's turn, one for each answered", param="turns"
            )
        answered.add(turn.reply_to)
    _check_statuses(export)
    seen: set[str] = set()
    for memory in export.memories:
        if (memory.happened_from is None) != (memory.happened_to is None):
            raise InvalidMessage(
                "memories.happened_to: expected both ends or neither", param="memories"
            )
        if memory.turn in turns and not turns[memory.turn].judged:
            raise InvalidMessage("memories.turn: expected one that was judged", param="memories")
        for source in (memory.turn, *memory.again):
            if source not in turns or source in seen or not memory.content.strip():
                raise InvalidMessage(
                    "memories.turn: expected a turn of the file, once", param="memories"
                )
            seen.add(source)


def _check_statuses(export: Export) -> None:
    for position, record in enumerate(export.records):
        if record.details.status not in ("", *STATUSES.get(record.layer, ())):
            name = f"records[{position}].details.status"
            raise InvalidMessage(f"{name}: expected one that its layer has", param=name)


def _said(export: Export) -> dict[str, str]:
    """Return the text of each turn: where it is no longer kept, what is remembered of it."""
    remembered = {memory.turn: memory.content for memory in export.memories}
    return {
        turn.id: turn.text if turn.text.strip() else remembered.get(turn.id, "")
        for turn in export.turns
    }


def _by_session(export: Export) -> dict[str, list[ExportedTurn]]:
    sessions: dict[str, list[ExportedTurn]] = {}
    for turn in export.turns:
        sessions.setdefault(turn.session, []).append(turn)
    return sessions
