"""What every step of curation works with."""

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
from foremind.background.prompt_fitting import fitted, tokens_of
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

_FRESH = timedelta(seconds=1)  # what was read so lately serves the next step as well

_log = structlog.get_logger("foremind.background")


@dataclass(slots=True)
class CurationContext:
    """One relationship under curation, as it stood when the work began.

    `server` is None where no language model is configured: rules do the work then. `records` are
    there after `read`, and read anew by `refresh` after a step changed them. `now` is when the
    step under way began. `attempts` is how often it failed before, and `stood_in` that rules did
    in it what the model could not.
    """

    bond: RelationshipState
    policy: LayerPolicy
    server: "OpenAIChatModel | None"
    count: CountTokens
    store: RecordStore
    embedder: EmbeddingService
    metrics: Metrics
    now: datetime
    forgets: ErasureWatch
    records: list[Record] = field(default_factory=list)
    read_at: datetime | None = None
    attempts: int = 0
    stood_in: bool = False

    @property
    def maker(self) -> MadeBy:
        """Which means does the work."""
        return "rules" if self.server is None or self.stood_in else "model"

    def changing(self) -> AbstractAsyncContextManager[RecordChanges]:
        """Change records; refused where something was erased since this work began.

        Raises:
            Conflict: something was forgotten or corrected meanwhile.
        """
        return self.store.changing(self.bond.id, self.now, self.bond.erasures)

    def dismissed(self, layer: RecordLayer, key: str) -> bool:
        """Tell whether the user had a record of this layer and key removed."""
        return digest_of(self.bond.salt, layer, key) in self.bond.dismissed

    async def read(self) -> None:
        """Read the records, unless they were a moment ago."""
        if self.read_at is None or self.now - self.read_at > _FRESH:
            await self.refresh()

    async def refresh(self) -> None:
        """Read the records anew."""
        self.records = await self.store.all(self.bond.id)
        self.read_at = self.now

    def of(self, layer: RecordLayer) -> list[Record]:
        """Return the records of a layer, oldest first."""
        return of_layer(self.records, layer)

    async def ask(
        self, work: str, messages: Sequence[Message], shape: type[Answer], max_tokens: int
    ) -> Answer:
        """Return what could be used of the language model's answer; raises as `answer`."""
        return (await self.answer(work, messages, shape, max_tokens)).value

    async def answer(
        self, work: str, messages: Sequence[Message], shape: type[Answer], max_tokens: int
    ) -> "StructuredAnswer[Answer]":
        """Return the language model's answer, written while nobody waits for the model.

        What does not fit into the model's context beside the answer is left out.

        Raises:
            Conflict: something of what it would be asked was forgotten while it was waited for.
            UnusableAnswer: it gave none; asking the same again gives the same.
            ModelServerError: it failed; what was to be done stays to be done.
        """
        # The library takes over a second to import, and a server without a model never needs it.
        from foremind.llm.structured_output import ask  # noqa: PLC0415

        assert self.server is not None
        count = self.metrics.curated.labels
        room = max(self.room((), max_tokens), self.policy.context_tokens // 4)
        size = sum(len(message["content"]) for message in messages)
        messages = await aside(size, lambda: fitted(messages, room, self.count))
        try:
            answer = await ask(
                self.server,
                messages,
                shape,
                max_tokens,
                most_tokens=self.policy.context_tokens - tokens_of(messages, self.count),
                on_displaced=lambda: count(work, "displaced").inc(),
                check=lambda: self.forgets.check(self.bond.id, self.bond.erasures),
            )
        except ModelServerError:
            count(work, "failed").inc()
            raise
        count(work, "model").inc()
        mended = {code: times for code, times in answer.mended.items() if times}
        for code, times in mended.items():
            self.metrics.mended.labels(work, code).inc(times)
        if mended or answer.cut_off:
            _log.info(
                "answer.mended",
                relationship_id=self.bond.id,
                work=work,
                cut_off=answer.cut_off,
                **mended,
            )
        return answer

    def room(self, asked: Sequence[Message], max_tokens: int) -> int:
        """Return the tokens left beside a prompt so far and an answer, in the model's context."""
        used = tokens_of(asked, self.count) + max_tokens
        return max(0, self.policy.context_tokens - used)

    def by_rules(self, work: str) -> None:
        """Count work that rules did."""
        self.metrics.curated.labels(work, "rules").inc()

    def stand_in(self, work: str, error: UnusableAnswer) -> None:
        """Let rules do what the model has had no usable answer to at another time either.

        The next portion is the model's again.

        Raises:
            UnusableAnswer: this is the first time.
        """
        if not self.attempts:
            raise error
        self.stood_in = True
        self.by_rules(work)
        _log.info("answer.unusable", relationship_id=self.bond.id, work=work)

    async def vector(self, text: str) -> npt.NDArray[np.float32]:
        """Return the unit vector, float32 [dimension], that a record is found by."""
        return await self.embedder.embed_passage(text)

    def utterances(self, turns: Sequence[TranscriptTurn]) -> list[Utterance]:
        """Return turns as what was said, by name."""
        names = {"user": self.bond.user_name, "companion": self.bond.companion_name}
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
