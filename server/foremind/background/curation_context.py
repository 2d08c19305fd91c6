"""What every background step works with: a relationship, its settings, records and model."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.background.background_model import BackgroundModel
from foremind.background.extractive_summary import Utterance
from foremind.domain.errors import UnusableAnswer
from foremind.domain.policy import LayerPolicy
from foremind.domain.record import MadeBy, Record, RecordLayer, of_layer
from foremind.domain.relationship import RelationshipState, TranscriptTurn
from foremind.llm.answer_gate import AnswerGate
from foremind.llm.prompt.layout import Message
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.prompt_language import prompt_language
from foremind.runtime.metrics import Metrics
from foremind.storage.curation_store import MAX_TURNS, CurationStore
from foremind.storage.database import DatabaseConnection
from foremind.storage.record_changes import RecordChanges, digest_of
from foremind.storage.record_store import RecordStore
from foremind.storage.turn_store import TurnStore

Answer = TypeVar("Answer", bound=msgspec.Struct)

#: Writes something that a step has decided, within a transaction.
Write = Callable[[RecordChanges], Awaitable[None]]
T = TypeVar("T")

_log = structlog.get_logger("foremind.background")


@dataclass(slots=True)
class CurationContext:
    """One relationship as it was when the work began.

    `records` are available after `load`. Steps decide by them, and plan what is to be written; what
    several of them have planned is written in one transaction. `now` is when the current step
    began, `attempts` how often it failed before; `fell_back` says that rules replaced the model.
    """

    relationship: RelationshipState
    policy: LayerPolicy
    model: BackgroundModel
    store: RecordStore
    curation: CurationStore
    turns: TurnStore
    embedder: EmbeddingService
    metrics: Metrics
    now: datetime
    records: list[Record] = field(default_factory=list, init=False)
    planned: list[Write] = field(default_factory=list, init=False)
    #: The last turn in the summary, as it is once what was planned is written.
    summarised_turn_id: int = field(init=False)
    _loaded: bool = field(default=False, init=False)
    _said: tuple[int, list[TranscriptTurn]] | None = field(default=None, init=False)
    attempts: int = field(default=0, init=False)
    fell_back: bool = field(default=False, init=False)
    _language: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.summarised_turn_id = self.relationship.summarised_turn_id

    @property
    def made_by(self) -> MadeBy:
        """Whether rules or the model do the work."""
        return "rules" if self.model.server is None or self.fell_back else "model"

    def plan(self, write: Write) -> None:
        """Plan to write something: it is called within the transaction of the next `commit`."""
        self.planned.append(write)

    async def commit(self, last: Callable[[DatabaseConnection | None], Awaitable[T]]) -> T:
        """Write what was planned and, last, something else, in one transaction if there is both.

        Raises:
            Conflict: something was erased, corrected or advanced since this work began.
            StorageUnavailable: nothing was written.
        """
        planned, self.planned = self.planned, []
        if not planned:
            return await last(None)
        self._loaded = False
        relationship = self.relationship
        async with self.store.begin_changes(
            relationship.id, self.now, relationship.erasures
        ) as changes:
            for write in planned:
                await write(changes)
            return await last(changes.connection)

    async def write_now(self) -> None:
        """Write what was planned, for a step that builds on it, and load the records again."""

        async def nothing_else(_: DatabaseConnection | None) -> None:
            pass

        await self.commit(nothing_else)
        await self.load()

    def dismissed(self, layer: RecordLayer, key: str) -> bool:
        """Return whether the user had a record of this layer and key removed."""
        return digest_of(self.relationship.salt, layer, key) in self.relationship.dismissed

    async def load(self) -> None:
        """Load the records, unless nothing was written since they were."""
        if not self._loaded:
            await self.reload()

    async def reload(self) -> None:
        """Load the records from the database."""
        self.records = await self.store.all(self.relationship.id)
        self._loaded = True

    async def said_after(self, turn_id: int, limit: int) -> list[TranscriptTurn]:
        """Return turns after a cursor, oldest first, as they were when the work began.

        They are read once for all steps, from the first of their cursors on, unless that is far.
        """
        if self._said is None:
            relationship = self.relationship
            first = min(
                relationship.stated_turn_id,
                relationship.noted_turn_id,
                *([relationship.summarised_turn_id] if self.policy.on("summary") else []),
            )
            turns = await self.curation.turns_after(relationship.id, first, MAX_TURNS)
            self._said = first, turns
        first, turns = self._said
        if turn_id == first or (turn_id > first and len(turns) < MAX_TURNS):
            return [turn for turn in turns if turn.id > turn_id][:limit]
        return await self.curation.turns_after(self.relationship.id, turn_id, limit)

    def records_of(self, layer: RecordLayer) -> list[Record]:
        """Return the records of a layer, oldest first."""
        return of_layer(self.records, layer)

    def count_by_rules(self, task: str) -> None:
        """Count a task that rules did."""
        self.metrics.curated.labels(task, "rules").inc()

    def fall_back(self, task: str, error: UnusableAnswer) -> None:
        """Fall back to rules once the model gave no usable answer at a second attempt.

        The model handles the next batch again.

        Raises:
            UnusableAnswer: this was the first attempt.
        """
        if not self.attempts:
            raise error
        self.refuse(task)

    def refuse(self, task: str) -> None:
        """Let rules replace an answer that says nothing of what the model was given."""
        self.fell_back = True
        self.count_by_rules(task)
        _log.info("answer.unusable", relationship_id=self.relationship.id, work=task)

    async def language(self) -> str:
        """Return the language of what rules write: that which the next prompts will be in."""
        if self._language is None:
            relationship = self.relationship
            self._language = await prompt_language(
                self.turns, relationship.language, relationship.id, None
            )
        return self._language

    async def embed(self, text: str) -> npt.NDArray[np.float32]:
        """Return the unit vector of a record's text, float32 [dimension]; a turn's own is known."""
        _, said = self._said or (0, [])
        for turn in said:
            if turn.content == text and turn.vector is not None:
                return turn.vector
        return await self.embedder.embed_passage(text)

    def gate(self, prompt: Sequence[Message], given: Iterable[str]) -> AnswerGate:
        """Return the gate of the answers to a prompt that quotes the texts `given`."""
        speakers = (self.relationship.user_name, self.relationship.companion_name)
        return AnswerGate(prompt[0]["content"], given, speakers)

    def utterances(self, turns: Sequence[TranscriptTurn]) -> list[Utterance]:
        """Return turns as utterances, with speaker names and times in the user's time zone."""
        names = {"user": self.relationship.user_name, "companion": self.relationship.companion_name}
        return [
            Utterance(
                turn.id,
                names[turn.speaker],
                turn.speaker == "user",
                turn.content,
                turn.significance,
                turn.created_at.astimezone(self.now.tzinfo),
            )
            for turn in turns
            if turn.content.strip()
        ]
