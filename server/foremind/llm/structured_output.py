"""Asks a language model for an answer of a given shape, for which nobody waits."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from foremind.domain.errors import ModelServerError, UnusableAnswer
from foremind.llm.answer_parsing import ParsedAnswer, UnparsableAnswer, read
from foremind.llm.openai_model import Completion, OpenAIChatModel, refuses_what_was_asked
from foremind.llm.prompt.layout import Message
from foremind.llm.thinking_filter import without_thinking
from foremind.runtime.offload import aside
from foremind.text.tokenization import terms_of

Answer = TypeVar("Answer", bound=msgspec.Struct)

_ATTEMPTS = 2
_MOST_SHOWN = 4_000  # characters of an answer that its model is shown again
_LEAST_SHARED = 3  # words of what was given that prose has to have
_THINKING_TOKENS = 2_048  # that a model which thinks aloud has besides its answer


@dataclass(frozen=True, slots=True)
class StructuredAnswer(Generic[Answer]):
    """An answer; `mended` counts by code what was not as it was asked for.

    `cut_off` says that the model would have written more: what is there holds, more is missing.
    """

    value: Answer
    cut_off: bool = False
    mended: Counter[str] = field(default_factory=Counter)


async def ask(
    server: OpenAIChatModel,
    messages: Sequence[Message],
    shape: type[Answer],
    max_tokens: int,
    *,
    most_tokens: int | None = None,
    on_displaced: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
) -> StructuredAnswer[Answer]:
    """Return the model's answer; one of which nothing can be used is asked for once more.

    The second time the model is shown what it wrote and what was wrong with it.

    Args:
        most_tokens: as many as fit into the model's context; for one that thinks aloud.
        on_displaced, check: as `OpenAIChatModel.answer` has them.

    Raises:
        ModelServerError: the server failed.
        UnusableAnswer: nothing of both answers could be used, or the server will not answer this.
    """
    asked = list(messages)
    problem = ""
    for attempt in range(_ATTEMPTS):
        room = server.with_thinking(max_tokens, _THINKING_TOKENS, most_tokens)
        try:
            written = await server.answer(asked, room, shape, on_displaced, check)
        except ModelServerError as error:
            if refuses_what_was_asked(error):
                raise UnusableAnswer("what it is asked is refused", error.code) from error
            raise
        last = attempt + 1 == _ATTEMPTS
        try:
            answer = await _read(written, shape, prose=last)
            if answer.mended["prose"]:
                await _check_prose(written.text, messages[-1]["content"])
        except UnparsableAnswer as error:
            problem = str(error)
            if written.cut_off:
                problem += " before it was too long"
            asked = [*messages, *_shown_again(written, problem)]
        else:
            whole = not written.cut_off or not answer.mended["repaired"]
            return StructuredAnswer(answer.value, not whole, answer.mended)
    raise UnusableAnswer(problem)


async def _read(written: Completion, shape: type[Answer], *, prose: bool) -> ParsedAnswer[Answer]:
    return await aside(len(written.text), lambda: read(written.text, shape, prose=prose))


async def _check_prose(text: str, given: str) -> None:
    """Check that prose speaks of what was given: "I'm sorry, I can't do that" is no summary.

    Raises:
        Unusable: it has hardly a word of it.
    """

    def words() -> tuple[set[str], set[str]]:
        return set(terms_of(without_thinking(text))), set(terms_of(given))

    told, known = await aside(len(text) + len(given), words)
    if len(told & known) < _LEAST_SHARED:
        raise UnparsableAnswer("it did not speak of what was given")


def _shown_again(written: Completion, problem: str) -> list[Message]:
    shown = written.text[:_MOST_SHOWN].strip() or "(nothing)"
    return [
        {"role": "assistant", "content": shown},
        {
            "role": "user",
            "content": f"That could not be used: {problem}. Answer again: shorter, and with "
            "nothing but the JSON that was asked for.",
        },
    ]
