"""Reads a relationship back that was written out, also by a server with another model."""

from collections.abc import Mapping
from datetime import datetime

from foremind.clock import zone_named
from foremind.embedding.service import EmbeddingService
from foremind.errors import InvalidMessage
from foremind.memory.exchange import read_alone, read_in_exchange
from foremind.memory.remember import Rememberer
from foremind.storage.records import FOUND_BY_MEANING, found_by
from foremind.storage.remembering import ExchangeTurn, MemoryText
from foremind.storage.transfer import Export, ExportedTurn, Made, TransferStore

_MOST_TURNS = 50_000


class Restorer:
    """Makes an export's vectors anew, with this server's model, and stores it."""

    def __init__(
        self, store: TransferStore, embedder: EmbeddingService, rememberer: Rememberer
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._rememberer = rememberer

    async def restore(
        self,
        user_id: str,
        companion: tuple[int, str],
        export: Export,
        *,
        in_exchange: bool,
        now: datetime,
    ) -> int:
        """Restore an export for a user; return the relationship's id.

        Args:
            companion: id and name.
            in_exchange: whether the companion's memories are read with those beside them.

        Raises:
            InvalidMessage: the file contradicts itself.
            Conflict: something was said with this companion already.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        check(export)
        embed = self._embedder.embed_passage
        turns = {each.id: await embed(each.text) for each in export.turns if each.text.strip()}
        names = await self._rememberer.name_vectors(export.user_name, companion[1])
        memory_of = {each.turn: each.id for each in export.memories}
        memories: dict[int, MemoryText] = {}
        for said in _by_session(export).values():
            around = [
                ExchangeTurn(
                    each.id, each.speaker, each.text, turns.get(each.id), memory_of.get(each.id)
                )
                for each in said
            ]
            for position, each in enumerate(around):
                if each.memory_id is None or each.vector is None:
                    continue
                memories[each.memory_id] = (
                    read_in_exchange(around, position, names)
                    if in_exchange
                    else read_alone(each, each.vector)
                )
        records = {
            each.id: await embed(found_by(each.title, each.content))
            for each in export.records
            if each.layer in FOUND_BY_MEANING
        }
        made = Made(turns, memories, records)
        return await self._store.write(user_id, companion[0], export, made, now)


def check(export: Export) -> None:
    """Make sure that everything an export refers to is in it.

    Raises:
        InvalidMessage: naming the field.
    """
    zone_named(export.time_zone)
    if len(export.turns) > _MOST_TURNS:
        raise InvalidMessage(f"turns: expected at most {_MOST_TURNS}", param="turns")
    sessions = {each.id for each in export.sessions}
    turns: Mapping[int, ExportedTurn] = {each.id: each for each in export.turns}
    if len(turns) != len(export.turns):
        raise InvalidMessage("turns: expected every id once", param="turns")
    answered: set[int | None] = set()
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
    seen: set[int] = set()
    for memory in export.memories:
        if (memory.happened_from is None) != (memory.happened_to is None):
            raise InvalidMessage(
                "memories.happened_to: expected both ends or neither", param="memories"
            )
        for source in (memory.turn, *memory.again):
            if source not in turns or source in seen or not turns[source].text.strip():
                raise InvalidMessage(
                    "memories.turn: expected a turn of the file, once", param="memories"
                )
            seen.add(source)


def _by_session(export: Export) -> dict[str, list[ExportedTurn]]:
    sessions: dict[str, list[ExportedTurn]] = {}
    for each in export.turns:
        sessions.setdefault(each.session, []).append(each)
    return sessions
