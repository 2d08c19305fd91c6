"""Structured output: asks a language model for an answer of a given shape, in the background."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from foremind.domain.errors import ModelServerError, UnusableAnswer
from foremind.llm.answer_parsing import ParsedAnswer, UnparsableAnswer, parse_answer
from foremind.llm.model_failures import is_content_refusal
from foremind.llm.openai_model import Completion, OpenAIChatModel
from foremind.llm.prompt.layout import Message
from foremind.llm.thinking_filter import without_thinking
from foremind.runtime.supervision import run_or_offload
from foremind.text.tokenization import terms_of

Answer = TypeVar("Answer", bound=msgspec.Struct)

_ATTEMPTS = 2
_MAX_SHOWN_CHARS = 4_000  # of an unusable answer that is shown to the model again
_MIN_SHARED_TERMS = 3  # that prose must have in common with the input
_THINKING_TOKENS = 2_048  # allowed in addition to the answer for a model that thinks aloud


@dataclass(frozen=True, slots=True)
class StructuredAnswer(Generic[Answer]):
    """An answer; `corrections` counts by code what did not conform and was corrected.

    `cut_off` says that the token limit ended the answer: what is there is usable but incomplete.
    """

    value: Answer
    cut_off: bool = False
    corrections: Counter[str] = field(default_factory=Counter)


async def request_answer(
    server: OpenAIChatModel,
    messages: Sequence[Message],
    shape: type[Answer],
    max_tokens: int,
    *,
    available_tokens: int | None = None,
    on_preempted: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
    purpose: str = "background",
) -> StructuredAnswer[Answer]:
    """Return the model's answer, after one retry if the first is unusable.

    On the retry, the model is shown its first answer and what was wrong with it.

    Args:
        available_tokens: what fits into the model's context, for a model that thinks aloud.
        on_preempted, check, purpose: as for `OpenAIChatModel.answer`.

    Raises:
        ModelServerError: the server failed.
        TokenLimitReached, StorageUnavailable: as `TokenAccount.admit`.
        UnusableAnswer: both answers were unusable, or the server refuses the request.
    """
    conversation = list(messages)
    problem = ""
    for attempt in range(_ATTEMPTS):
        limit = server.tokens_with_thinking(max_tokens, _THINKING_TOKENS, available_tokens)
        try:
            completion = await server.answer(
                conversation, limit, shape, on_preempted, check, purpose=purpose
            )
        except ModelServerError as error:
            if is_content_refusal(error):
                raise UnusableAnswer("the server refuses the request", error.code) from error
            raise
        is_last = attempt + 1 == _ATTEMPTS
        try:
            answer = await _parse(completion, shape, prose=is_last)
            if answer.corrections["prose"]:
                await _check_prose(completion.text, messages[-1]["content"])
        except UnparsableAnswer as error:
            problem = str(error)
            if completion.cut_off:
                problem += " before it was too long"
            conversation = [*messages, *_retry_messages(completion, problem)]
        else:
            ends_early = answer.corrections["repaired"] or answer.corrections["prose"]
            cut_off = completion.cut_off and bool(ends_early)
            return StructuredAnswer(answer.value, cut_off, answer.corrections)
    raise UnusableAnswer(problem)


async def _parse(
    completion: Completion, shape: type[Answer], *, prose: bool
) -> ParsedAnswer[Answer]:
    return await run_or_offload(
        len(completion.text), lambda: parse_answer(completion.text, shape, prose=prose)
    )


async def _check_prose(text: str, source: str) -> None:
    """Check that prose is about its input: "I'm sorry, I can't do that" is no summary.

    Raises:
        UnparsableAnswer: they have hardly any terms in common.
    """

    def terms() -> tuple[set[str], set[str]]:
        return set(terms_of(without_thinking(text))), set(terms_of(source))

    answer_terms, source_terms = await run_or_offload(len(text) + len(source), terms)
    if len(answer_terms & source_terms) < _MIN_SHARED_TERMS:
        raise UnparsableAnswer("it did not speak of what was given")


def _retry_messages(completion: Completion, problem: str) -> list[Message]:
    shown = completion.text[:_MAX_SHOWN_CHARS].strip() or "(nothing)"
    return [
        {"role": "assistant", "content": shown},
        {
            "role": "user",
            "content": f"That could not be used: {problem}. Answer again: shorter, and with "
            "nothing but the JSON that was asked for.",
        },
    ]
