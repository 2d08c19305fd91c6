"""What every background step works with: a relationship, its settings, records and model."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.background.due_work import is_over
from foremind.background.extractive_summary import Utterance
from foremind.background.prompt_fitting import fit_prompt
from foremind.background.step_definitions import Outcome
from foremind.domain.errors import ModelServerError, UnusableAnswer
from foremind.domain.policy import LayerPolicy
from foremind.domain.record import RECORD_LAYERS, Cursor, MadeBy, Record, RecordLayer, of_layer
from foremind.domain.relationship import ChangeSet, RelationshipState, TranscriptTurn
from foremind.llm.background_answer_gate import AnswerGate
from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import CountTokens, prompt_tokens
from foremind.llm.structured_output import StructuredAnswer, request_answer
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.prompt_language import prompt_language
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import run_or_offload
from foremind.storage.background_store import MAX_TURNS, BackgroundStore
from foremind.storage.database import DatabaseConnection
from foremind.storage.record_store import RecordChanges, RecordStore, digest_of
from foremind.storage.relationship_store import ErasureWatch
from foremind.storage.turn_store import TurnStore

Answer = TypeVar("Answer", bound=msgspec.Struct)

#: Writes something that a step has decided, within a transaction.
Write = Callable[[RecordChanges], Awaitable[None]]
T = TypeVar("T")

_MAX_SURPLUS = 5  # parts of a whole answer beyond those asked for: more of them are a loop
_READ_LIMIT = 200  # turns loaded by a step that handles a few at a time

_log = structlog.get_logger("foremind.background")


@dataclass(frozen=True, slots=True)
class Answered(Generic[Answer]):
    """A model's answer, the gate of what it was given, and whether nothing of it is missing."""

    value: Answer
    gate: AnswerGate
    complete: bool


@dataclass(slots=True)
class StepContext:
    """One relationship as it was when the work began.

    `records` are available after `load`. Steps decide by them, and plan what is to be written; what
    several of them have planned is written in one transaction. `now` is when the current step
    began, `attempts` how often it failed before; `fell_back` says that rules replaced the model.
    `server` is None where no language model is configured; rules do the work then.
    """

    relationship: RelationshipState
    policy: LayerPolicy
    server: OpenAIChatModel | None
    count_tokens: CountTokens
    erasure_watch: ErasureWatch
    store: RecordStore
    background: BackgroundStore
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
    #: Of a step that takes turns one by one.
    turn_id: int = field(default=0, init=False)
    fell_back: bool = field(default=False, init=False)
    _language: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.summarised_turn_id = self.relationship.summarised_turn_id

    @property
    def made_by(self) -> MadeBy:
        """Whether rules or the model do the work."""
        return "rules" if self.server is None or self.fell_back else "model"

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
            turns = await self.background.turns_after(relationship.id, first, MAX_TURNS)
            self._said = first, turns
        first, turns = self._said
        if turn_id == first or (turn_id > first and len(turns) < MAX_TURNS):
            return [turn for turn in turns if turn.id > turn_id][:limit]
        return await self.background.turns_after(self.relationship.id, turn_id, limit)

    async def read_turns(
        self,
        cursor: Cursor,
        next_batch: Callable[[Sequence[TranscriptTurn]], Sequence[TranscriptTurn]],
        read: Callable[
            [Sequence[TranscriptTurn], Collection[RecordLayer]], Awaitable[tuple[Write, int]]
        ],
        redo: Sequence[ChangeSet],
        *,
        ends_redo: bool = True,
    ) -> Outcome:
        """Read a batch of turns after a cursor, and turns of which something was removed.

        Args:
            next_batch: returns the first of the turns given that are to be read now.
            read: returns how to write what was found for some layers, and the id of the last turn
                that it covers.
            redo: the turns that are to be read again because another source was erased.
            ends_redo: nothing else has to read these.
        """
        before: int = getattr(self.relationship, f"{cursor}_turn_id")
        turns = await self.said_after(before, _READ_LIMIT)
        batch, last = next_batch(turns), before
        if batch or redo:
            await self.load()
        if batch:
            write, last = await read(batch, RECORD_LAYERS)

            async def advance(changes: RecordChanges) -> None:
                changes.advance(cursor, last, before)

            self.planned += [write, advance]
        to_read = list(dict.fromkeys(change_set.turns for change_set in redo))
        for turn_ids in to_read[:1] if ends_redo else to_read:
            await self.write_now()
            of_turns = [change_set for change_set in redo if change_set.turns == turn_ids]
            again, _ = await read(
                await self.background.turns(self.relationship.id, turn_ids),
                [change_set.layer for change_set in of_turns],
            )
            self.planned.append(again)
            for change_set in of_turns if ends_redo else ():
                self.plan(partial(RecordChanges.remove_change_set, change_set=change_set))
        more = len(turns) == _READ_LIMIT or next_batch([turn for turn in turns if turn.id > last])
        return Outcome(
            produced=bool(batch), more=bool(batch and more) or (ends_redo and len(to_read) > 1)
        )

    def records_of(self, layer: RecordLayer) -> list[Record]:
        """Return the records of a layer, oldest first."""
        return of_layer(self.records, layer)

    @property
    def active_sessions(self) -> set[UUID]:
        """The open sessions that are not over yet."""
        sessions = self.relationship.open_sessions
        return {session.id for session in sessions if not is_over(session, self.policy, self.now)}

    async def ask(
        self,
        task: str,
        prompt: Callable[[], Sequence[Message]],
        given: Iterable[str],
        shape: type[Answer],
        max_tokens: int,
        *,
        whole: bool = True,
    ) -> Answered[Answer] | None:
        """Return the model's answer; None where rules are to do the work.

        They do where there is no model, or once it gave no usable answer at a second attempt; the
        model handles the next batch again.

        Args:
            given: the texts that the prompt quotes, from which the answer must come.
            whole: an answer that was cut off is of no use.

        Raises:
            UnusableAnswer: this was the first attempt; asking the same again gives the same.
            Conflict: part of the prompt was erased while it waited for the model.
            ModelServerError, TokenLimitReached: the work remains to be done.
        """
        self.fell_back = False
        if self.server is None:
            self.count_by_rules(task)
            return None
        messages = prompt()
        try:
            answer = await self._request(self.server, task, messages, shape, max_tokens)
            complete = not answer.cut_off and not answer.corrections["too_many"]
            if whole and (answer.cut_off or answer.corrections["too_many"] > _MAX_SURPLUS):
                raise UnusableAnswer("it was too long to be complete")
        except UnusableAnswer:
            if not self.attempts:
                raise
            self.refuse(task)
            return None
        speakers = (self.relationship.user_name, self.relationship.companion_name)
        gate = AnswerGate(messages[0]["content"], given, speakers)
        return Answered(answer.value, gate, complete)

    async def _request(
        self,
        server: OpenAIChatModel,
        task: str,
        messages: Sequence[Message],
        shape: type[Answer],
        max_tokens: int,
    ) -> StructuredAnswer[Answer]:
        """Return an answer at background priority, to a prompt that leaves room for it."""
        count, context_tokens = self.metrics.background_tasks.labels, self.policy.context_tokens
        room = max(self.remaining_tokens((), max_tokens), context_tokens // 4)
        size = sum(len(message["content"]) for message in messages)
        messages = await run_or_offload(size, lambda: fit_prompt(messages, room, self.count_tokens))
        try:
            answer = await request_answer(
                server,
                messages,
                shape,
                max_tokens,
                available_tokens=context_tokens - prompt_tokens(messages, self.count_tokens),
                on_preempted=lambda: count(task, "displaced").inc(),
                check=lambda: self.erasure_watch.check(
                    self.relationship.id, self.relationship.erasures
                ),
                purpose=task,
            )
        except ModelServerError:
            count(task, "failed").inc()
            raise
        count(task, "model").inc()
        corrections = {code: times for code, times in answer.corrections.items() if times}
        for code, times in corrections.items():
            self.metrics.corrections.labels(task, code).inc(times)
        if corrections or answer.cut_off:
            _log.info(
                "answer.mended",
                relationship_id=self.relationship.id,
                work=task,
                cut_off=answer.cut_off,
                **corrections,
            )
        return answer

    def remaining_tokens(self, prompt: Sequence[Message], max_tokens: int) -> int:
        """Return the tokens of the model's context left after a prompt and its answer."""
        used = prompt_tokens(prompt, self.count_tokens) + max_tokens
        return max(0, self.policy.context_tokens - used)

    def count_by_rules(self, task: str) -> None:
        """Count a task that rules did."""
        self.metrics.background_tasks.labels(task, "rules").inc()

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
