"""Correcting what is remembered: said differently, embedded and indexed anew at once."""

import structlog

from foremind.clock import Clock
from foremind.embedding.service import EmbeddingService
from foremind.memory.exchange import position_of, read_alone, read_in_exchange, reread
from foremind.memory.facts import facts_in
from foremind.memory.remember import Rememberer
from foremind.storage.database import Database
from foremind.storage.forgetting import ForgettingTransaction

_log = structlog.get_logger("foremind.memory")


class Corrector:
    """Puts other words in the place of a memory's, everywhere.

    The turns that it was made of read as corrected, turns that quote the old words are emptied, and
    memories beside it are read anew. Records that were made of the old words are made anew.
    """

    def __init__(
        self,
        database: Database,
        embedder: EmbeddingService,
        rememberer: Rememberer,
        clock: Clock,
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._rememberer = rememberer
        self._clock = clock

    async def correct(
        self,
        relationship_id: int,
        names: tuple[str, str],
        memory_id: int,
        content: str,
        *,
        actor: str,
        in_exchange: bool,
    ) -> None:
        """Correct a memory of a relationship.

        Args:
            names: the user's and the companion's.
            in_exchange: whether the companion's memories are read with those beside them.

        Raises:
            NotFound: the relationship has no such memory.
            StorageUnavailable, Overloaded: try again later; nothing was half done.
        """
        vector = await self._embedder.embed_passage(content)
        vectors = await self._rememberer.name_vectors(*names)
        now = self._clock.now()
        async with ForgettingTransaction.begin(self._database, relationship_id) as transaction:
            said, quoting = await transaction.said_and_quoted(memory_id)
            await transaction.remove_records(said | quoting, everything=False)
            await transaction.remove(await transaction.memories_behind(quoting), quoting, now)
            await transaction.say_instead(memory_id, said, content, vector)
            await transaction.state_anew(memory_id, facts_in(content))
            for turn in sorted(said):
                around = await transaction.exchange(turn)
                here = around[position_of(around, turn)]
                if here.memory_id == memory_id:
                    text = (
                        read_in_exchange(around, position_of(around, turn), vectors)
                        if in_exchange
                        else read_alone(here, vector)
                    )
                    await transaction.rewrite(memory_id, text)
                for other, reading in reread(around, turn, vectors).items() if in_exchange else ():
                    await transaction.rewrite(other, reading.text)
            await transaction.rebuild(said | quoting, now)
            await transaction.audit(actor, "correct", f"memory {memory_id}", now)
            await transaction.announce(said | quoting)
        _log.info("memory.corrected", relationship_id=relationship_id, memory_id=memory_id)
