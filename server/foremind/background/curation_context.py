"""What every background step works with: a relationship, its settings, records and model."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.background.extractive_summary import Utterance
from foremind.background.prompt_fitting import fit_prompt, prompt_tokens
from foremind.domain.errors import ModelServerError, UnusableAnswer
from foremind.domain.policy import LayerPolicy
from foremind.domain.record import MadeBy, Record, RecordLayer, of_layer
from foremind.domain.relationship import RelationshipState, TranscriptTurn
from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import CountTokens
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.metrics import Metrics
from foremind.runtime.offload import aside
from foremind.storage.erasure_watch import ErasureWatch
from foremind.storage.record_changes import RecordChanges, digest_of
from foremind.storage.record_store import RecordStore

if TYPE_CHECKING:
    from foremind.llm.openai_model import OpenAIChatModel
    from foremind.llm.structured_output import StructuredAnswer

Answer = TypeVar("Answer", bound=msgspec.Struct)

_REUSE_WINDOW = timedelta(seconds=1)  # records loaded this recently serve the next step as well

_log = structlog.get_logger("foremind.background")


@dataclass(slots=True)
class CurationContext:
    """One relationship as it was when the work began.

    `server` is None where no language model is configured; rules do the work then. `records` are
    available after `load`; `reload` updates them after a step changed them. `now` is when the
    current step began, `attempts` how often it failed before; `fell_back` says that rules replaced
    the model in it.
    """

    relationship: RelationshipState
    policy: LayerPolicy
    server: "OpenAIChatModel | None"
    count_tokens: CountTokens
    store: RecordStore
    embedder: EmbeddingService
    metrics: Metrics
    now: datetime
    erasure_watch: ErasureWatch
    records: list[Record] = field(default_factory=list)
    loaded_at: datetime | None = None
    attempts: int = 0
    fell_back: bool = False

    @property
    def made_by(self) -> MadeBy:
        """Whether rules or the model do the work."""
        return "rules" if self.server is None or self.fell_back else "model"

    def changing(self) -> AbstractAsyncContextManager[RecordChanges]:
        """Change records in one transaction.

        Raises:
            Conflict: something was erased or corrected since this work began.
        """
        return self.store.changing(self.relationship.id, self.now, self.relationship.erasures)

    def dismissed(self, layer: RecordLayer, key: str) -> bool:
        """Return whether the user had a record of this layer and key removed."""
        return digest_of(self.relationship.salt, layer, key) in self.relationship.dismissed

    async def load(self) -> None:
        """Load the records, unless they were loaded a moment ago."""
        if self.loaded_at is None or self.now - self.loaded_at > _REUSE_WINDOW:
            await self.reload()

    async def reload(self) -> None:
        """Load the records from the database."""
        self.records = await self.store.all(self.relationship.id)
        self.loaded_at = self.now

    def records_of(self, layer: RecordLayer) -> list[Record]:
        """Return the records of a layer, oldest first."""
        return of_layer(self.records, layer)

    async def ask(
        self, task: str, messages: Sequence[Message], shape: type[Answer], max_tokens: int
    ) -> Answer:
        """Return the usable part of the language model's answer; raises as `ask_in_detail`."""
        return (await self.ask_in_detail(task, messages, shape, max_tokens)).value

    async def ask_in_detail(
        self, task: str, messages: Sequence[Message], shape: type[Answer], max_tokens: int
    ) -> "StructuredAnswer[Answer]":
        """Return the language model's answer, generated at background priority.

        The prompt is shortened to fit into the model's context together with the answer.

        Args:
            task: label of the metrics.

        Raises:
            Conflict: part of the prompt was erased while it waited for the model.
            UnusableAnswer: no usable answer; asking the same again gives the same.
            ModelServerError: the model server failed; the work remains to be done.
        """
        # The library takes over a second to import, and a server without a model never needs it.
        from foremind.llm.structured_output import ask  # noqa: PLC0415

        assert self.server is not None
        count = self.metrics.curated.labels
        room = max(self.remaining_tokens((), max_tokens), self.policy.context_tokens // 4)
        size = sum(len(message["content"]) for message in messages)
        messages = await aside(size, lambda: fit_prompt(messages, room, self.count_tokens))
        try:
            answer = await ask(
                self.server,
                messages,
                shape,
                max_tokens,
                most_tokens=self.policy.context_tokens - prompt_tokens(messages, self.count_tokens),
                on_displaced=lambda: count(task, "displaced").inc(),
                check=lambda: self.erasure_watch.check(
                    self.relationship.id, self.relationship.erasures
                ),
            )
        except ModelServerError:
            count(task, "failed").inc()
            raise
        count(task, "model").inc()
        mended = {code: times for code, times in answer.mended.items() if times}
        for code, times in mended.items():
            self.metrics.mended.labels(task, code).inc(times)
        if mended or answer.cut_off:
            _log.info(
                "answer.mended",
                relationship_id=self.relationship.id,
                work=task,
                cut_off=answer.cut_off,
                **mended,
            )
        return answer

    def remaining_tokens(self, prompt: Sequence[Message], max_tokens: int) -> int:
        """Return the tokens of the model's context left after a prompt and its answer."""
        used = prompt_tokens(prompt, self.count_tokens) + max_tokens
        return max(0, self.policy.context_tokens - used)

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
        self.fell_back = True
        self.count_by_rules(task)
        _log.info("answer.unusable", relationship_id=self.relationship.id, work=task)

    async def embed(self, text: str) -> npt.NDArray[np.float32]:
        """Return the unit vector of a record's text, float32 [dimension]."""
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
