"""The language model as background steps ask it: prompts fitted, answers checked and counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog

from foremind.background.prompt_fitting import fit_prompt
from foremind.domain.errors import ModelServerError, UnusableAnswer
from foremind.domain.relationship import RelationshipState
from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import CountTokens, prompt_tokens
from foremind.runtime.metrics import Metrics
from foremind.runtime.offload import run_or_offload
from foremind.storage.erasure_watch import ErasureWatch

if TYPE_CHECKING:
    from foremind.llm.openai_model import OpenAIChatModel
    from foremind.llm.structured_output import StructuredAnswer

Answer = TypeVar("Answer", bound=msgspec.Struct)

_MAX_SURPLUS = 5  # parts of a whole answer beyond those asked for: more of them are a loop

_log = structlog.get_logger("foremind.background")


@dataclass(frozen=True, slots=True)
class BackgroundModel:
    """The language model of a relationship, asked at background priority.

    `server` is None where no language model is configured; rules do the work then. Prompts and
    answers together take at most `context_tokens`.
    """

    relationship: RelationshipState
    server: "OpenAIChatModel | None"
    context_tokens: int
    count_tokens: CountTokens
    erasure_watch: ErasureWatch
    metrics: Metrics

    async def ask(
        self, task: str, messages: Sequence[Message], shape: type[Answer], max_tokens: int
    ) -> Answer:
        """Return the language model's answer, which must be whole.

        Raises:
            UnusableAnswer: also if it was cut off, or most of it did not fit.
            Conflict, ModelServerError: as `ask_in_detail`.
        """
        answer = await self.ask_in_detail(task, messages, shape, max_tokens)
        if answer.cut_off or answer.corrections["too_many"] > _MAX_SURPLUS:
            raise UnusableAnswer("it was too long to be complete")
        return answer.value

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
            TokenLimitReached: likewise, for today.
        """
        # The library takes over a second to import, and a server without a model never needs it.
        from foremind.llm.structured_output import request_answer  # noqa: PLC0415

        assert self.server is not None
        count = self.metrics.curated.labels
        room = max(self.remaining_tokens((), max_tokens), self.context_tokens // 4)
        size = sum(len(message["content"]) for message in messages)
        messages = await run_or_offload(size, lambda: fit_prompt(messages, room, self.count_tokens))
        try:
            answer = await request_answer(
                self.server,
                messages,
                shape,
                max_tokens,
                available_tokens=self.context_tokens - prompt_tokens(messages, self.count_tokens),
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
        return max(0, self.context_tokens - used)
