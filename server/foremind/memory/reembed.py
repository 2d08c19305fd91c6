"""`foremind db reembed`: gives a store the vectors of another embedding model while servers run.

The other columns are filled with vectors of the new model, relationship by relationship, while
servers read and write the ones that they search; what changes meanwhile loses its new vector, and
is embedded again. Once little is left, the model is locked, the rest is embedded, and the columns
change their roles in one transaction. A server that runs goes on to search its own vectors, is
refused changes, and starts again with the new model within seconds. When none is left, the former
vectors are dropped.

An interrupted run leaves a store that servers can use; the next one continues it.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache
from pgvector import HalfVector

from foremind.domain.clock import Clock
from foremind.domain.errors import DatabaseUnsuitable
from foremind.domain.policy import policy_for
from foremind.domain.record import search_text
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.settings.settings import Settings
from foremind.domain.turn import Speaker
from foremind.memory.contextual_embedding import WINDOW_RADIUS, contextual_text, position_of
from foremind.storage.companion_store import relationship_settings, settings_from_json
from foremind.storage.database import Database
from foremind.storage.memory_store import decode_exchange_turn
from foremind.storage.migrations import connected
from foremind.storage.model_binding import empty_other_vectors, index_other_vectors
from foremind.storage.named_queries import load_queries
from foremind_models import Manifest, OnnxEncoder

Vector = npt.NDArray[np.float32]
Rows = Sequence[Any]

_BATCH_SIZE = 64  # texts embedded between two writes
_RELATIONSHIPS = 500  # read at a time
_FEW = 20  # relationships that may be embedded while nobody can change any
_MAX_PASSES = 10  # before the model is locked in any case
_POLL_S = 0.5
_MAX_NAMES = 10_000


class Reembedding:
    """Replaces the embedding model of a store.

    Args:
        database: a pool that nothing else uses.
        owner_url: of the owner of its tables.
        say: told what is being done.
    """

    def __init__(
        self,
        database: Database,
        owner_url: str,
        manifest: Manifest,
        encoder: OnnxEncoder,
        settings: Settings,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._database = database
        self._url = owner_url
        self._manifest = manifest
        self._encoder = encoder
        self._settings = settings
        self._clock = clock
        self._say = say
        self._names: LRUCache[str, Vector] = LRUCache(_MAX_NAMES)
        #: The versions of relationships when they were embedded.
        self._done: dict[int, tuple[int, int]] = {}

    async def run(self) -> bool:
        """Replace the model; False if the store has it already.

        Raises:
            DatabaseUnsuitable: the store has no model yet, or its model is being replaced already.
            StorageUnavailable: the database did not answer; run it again.
        """
        async with connected(self._url) as owner:
            if not await owner.fetchval(load_queries()["lock_reembedding"]):
                raise DatabaseUnsuitable("Another `foremind db reembed` is running.")
            return await self._run()

    async def _run(self) -> bool:
        model = await self._database.row("embedding_model")
        if model is None:
            raise DatabaseUnsuitable(
                "The database has no embedding model yet: set FOREMIND_EMBEDDING_MODEL to "
                f"{self._manifest.name} and start the server."
            )
        swapped, other = model["swapped"], model["other_fingerprint"]
        if model["fingerprint"] == self._manifest.fingerprint:
            if other is not None:
                await self._finish(other, swapped=swapped)
            return False
        if other not in (None, self._manifest.fingerprint):
            await self._empty(other, swapped=swapped)
        await self._begin(model)
        self._say(f"Embedding with {self._manifest.name}; servers may run.")
        for _ in range(_MAX_PASSES):
            if await self._embed_changed() <= _FEW:
                break
        await self._switch()
        self._say(f"The database has the embedding model {self._manifest.name} now.")
        await self._finish(model["fingerprint"], swapped=not swapped)
        return True

    async def _begin(self, model: Any) -> None:
        """Record what the other columns are for, and index them, given the present model."""
        self._database.use_vectors(model["fingerprint"], swapped=model["swapped"])
        await self._database.execute("begin_reembedding", self._manifest.fingerprint)
        await index_other_vectors(self._url, swapped=model["swapped"])

    async def _switch(self) -> None:
        """Embed the rest while nothing can change, and let the columns change their roles."""
        manifest = self._manifest
        async with self._database.transaction() as connection:
            await connection.execute("lock_embedding_model")
            await self._embed_changed()
            await connection.execute(
                "switch_embedding_model", manifest.name, manifest.fingerprint, manifest.dimension
            )

    async def _finish(self, former: str, *, swapped: bool) -> None:
        """Drop the vectors of the former model, given where those of the present one are."""
        self._database.use_vectors(former, swapped=not swapped)
        self._done.clear()
        await self._each_changed(self._embed_turns)  # those of which nothing was remembered
        await self._empty(former, swapped=swapped)

    async def _empty(self, fingerprint: str, *, swapped: bool) -> None:
        """Drop the other vectors, once no server searches them."""
        told = False
        while not await empty_other_vectors(self._url, fingerprint, swapped=swapped):
            if not told:
                self._say("Waiting until no server uses the former vectors ...")
                told = True
            await self._clock.sleep(_POLL_S)

    async def _embed_changed(self) -> int:
        """Embed what changed since it was embedded; return in how many relationships."""
        changed = await self._each_changed(self._embed_relationship)
        last = 0
        while rows := await self._database.rows("passages_to_reembed", last, _BATCH_SIZE):
            vectors = await self._embed([row["content"] for row in rows])
            await self._database.execute("fill_passages", *_columns(rows, vectors))
            last = rows[-1]["id"]
        return changed

    async def _each_changed(self, embed: Callable[[Any], Awaitable[None]]) -> int:
        """Embed the relationships that changed since they were; return how many."""
        last, changed, said_at = 0, 0, self._clock.monotonic()
        while rows := await self._database.rows("relationships_to_reembed", last, _RELATIONSHIPS):
            for row in rows:
                versions = row["memory_version"], row["layers_version"]
                if self._done.get(row["id"]) == versions:
                    continue
                await embed(row)
                self._done[row["id"]] = versions
                changed += 1
                if self._clock.monotonic() - said_at > 5.0:
                    said_at = self._clock.monotonic()
                    self._say(f"{changed:,} relationships are embedded ...")
            last = rows[-1]["id"]
        return changed

    async def _embed_relationship(self, row: Any) -> None:
        await self._embed_turns(row)  # before the memories made of them
        await self._fill(row["id"], "records", self._record_vectors)
        effective = effective_settings(
            settings_from_json(row["companion_settings"]),
            relationship_settings(row),
            self._settings,
        )
        in_exchange = policy_for(effective, self._settings).storage.read_in_exchange
        names: dict[Speaker, Vector] = {
            "user": await self._name(row["user_name"]),
            "companion": await self._name(row["companion_name"]),
        }

        async def vectors(memories: Rows) -> list[Vector | None]:
            return await self._memory_vectors(row["id"], memories, names if in_exchange else None)

        await self._fill(row["id"], "memories", vectors)

    async def _embed_turns(self, row: Any) -> None:
        await self._fill(row["id"], "turns", self._turn_vectors)

    async def _turn_vectors(self, turns: Rows) -> list[Vector | None]:
        return [*await self._embed([turn["content"] for turn in turns])]

    async def _record_vectors(self, records: Rows) -> list[Vector | None]:
        return [*await self._embed([search_text(row["title"], row["content"]) for row in records])]

    async def _memory_vectors(
        self, relationship_id: int, memories: Rows, names: Mapping[Speaker, Vector] | None
    ) -> list[Vector | None]:
        """Return the vectors of memories as ingest would make them.

        Args:
            names: vectors of the speakers' names; None if memories are embedded alone.
        """
        alone = [memory for memory in memories if names is None or memory["session_id"] is None]
        texts = await self._embed([memory["content"] for memory in alone])
        made = dict(zip((memory["id"] for memory in alone), texts, strict=True))
        if names is not None:
            made |= await self._in_exchange(
                relationship_id,
                {row["source_turn_id"] for row in memories if row["session_id"] is not None},
                names,
            )
        return [made.get(memory["id"]) for memory in memories]

    async def _in_exchange(
        self, relationship_id: int, turns: set[int], names: Mapping[Speaker, Vector]
    ) -> dict[int, Vector]:
        """Return the vectors, by memory, of turns with those around them."""
        new = copy.copy(self._database)  # reads the new vectors
        new.use_vectors(self._manifest.fingerprint, swapped=not self._database.swapped)
        data = new.for_relationship(relationship_id)
        sessions: dict[Any, list[int]] = {}
        for row in await data.rows("sessions_of_turns", relationship_id, list(turns)):
            if row["says"]:
                sessions.setdefault(row["session_id"], []).append(row["id"])
        windows = {
            turn: session[max(0, place - WINDOW_RADIUS) : place + WINDOW_RADIUS + 1]
            for session in sessions.values()
            for place, turn in enumerate(session)
            if turn in turns
        }
        near = {turn for window in windows.values() for turn in window}
        rows = await data.rows("window_turns", relationship_id, list(near))
        known = {row["id"]: decode_exchange_turn(row) for row in rows}
        vectors: dict[int, Vector] = {}
        for turn, window in windows.items():
            neighbours = [known[other] for other in window if other in known]
            memory_id = known[turn].memory_id if turn in known else None
            if memory_id is not None and known[turn].vector is not None:
                position = position_of(neighbours, turn)
                text = contextual_text(neighbours, position, names, lambda _: {})
                vectors[memory_id] = text.vector
        return vectors

    async def _fill(
        self,
        relationship_id: int,
        kind: str,
        embed: Callable[[Rows], Awaitable[Sequence[Vector | None]]],
    ) -> None:
        """Give vectors to the rows of one kind that lack one; one that is None is left out."""
        last = 0
        data = self._database.for_relationship(relationship_id)
        while rows := await data.rows(_READ[kind], relationship_id, last, _BATCH_SIZE):
            last = rows[-1]["id"]
            vectors = await embed(rows)
            made = [
                (row, vector)
                for row, vector in zip(rows, vectors, strict=True)
                if vector is not None
            ]
            await data.execute(
                _WRITE[kind],
                relationship_id,
                *_columns([row for row, _ in made], [vector for _, vector in made]),
            )

    async def _name(self, name: str) -> Vector:
        if name not in self._names:
            (self._names[name],) = await self._embed([name])
        return self._names[name]

    async def _embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the unit vectors, float32 [dimension], of texts to be stored."""
        if not texts:
            return []
        prefixed = [self._manifest.passage_prefix + text for text in texts]
        return [*await asyncio.to_thread(self._encoder.encode, prefixed)]


#: The queries that read rows without a new vector, and that store one.
_READ = {
    "turns": "turns_to_reembed",
    "records": "records_to_reembed",
    "memories": "memories_to_reembed",
}
_WRITE = {"turns": "fill_turns", "records": "fill_records", "memories": "fill_memories"}


def _columns(
    rows: Rows, vectors: Sequence[Vector]
) -> tuple[list[int], list[Any], list[HalfVector]]:
    """Return what a query that fills vectors takes: ids, former vectors and new ones."""
    return (
        [row["id"] for row in rows],
        [row["known"] for row in rows],
        [HalfVector(vector) for vector in vectors],
    )
