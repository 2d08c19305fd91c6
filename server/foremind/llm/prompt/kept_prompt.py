"""What is kept of how a reply came about: its prompt, why memories are in it, settings. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from foremind.domain.memory import Reason
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.turn import MadePrompt, Speaker
from foremind.llm.acting import tools_of
from foremind.llm.prompt.layout import Prompt

_MAX_CHARS = 1_000_000  # of a prompt that is kept, with what belongs to it


class PromptMessage(msgspec.Struct, frozen=True):
    """A message of a prompt, as the language model was given it."""

    role: Literal["system", "user", "assistant"]
    content: str


class WhyRecalled(msgspec.Struct, frozen=True):
    """Why a memory was recalled: by meaning (`cosine`), words (`keyword`) and both (`relevance`).

    `reasons` are why it is significant.
    """

    relevance: float
    cosine: float
    keyword: float
    reasons: Sequence[Reason] = ()


class PromptMemory(msgspec.Struct, frozen=True):
    """A memory that was in a prompt; `superseded`: a newer one contradicts it."""

    id: str
    content: str
    score: float
    significance: float
    created_at: datetime
    speaker: Speaker
    memory_type: str
    superseded: bool
    place: str
    why: WhyRecalled


class KeptPrompt(msgspec.Struct, frozen=True):
    """The prompt of a reply to the byte, its memories and why, the settings that were in force.

    `messages` and `tools` are what the language model was given, `model` is its name, `offline` of
    none. `settings` are as `GET /v1/relationships/{id}/config` shows them; `from` is also `turn`.
    """

    model: str
    messages: Sequence[PromptMessage]
    tools: Sequence[dict[str, Any]]
    memories: Sequence[PromptMemory]
    settings: Mapping[str, Any]


def keep_prompt(
    prompt: Prompt, model: ChatModelPolicy, settings: Mapping[str, Any], removals: int
) -> MadePrompt | None:
    """Return what is stored of a prompt, None if it is too long to be.

    Args:
        settings: those in force, by name.
        removals: of its relationship, as many as were known before anything was gathered for it.
    """
    messages = prompt.messages()
    if sum(len(message["content"]) for message in messages) > _MAX_CHARS:
        return None
    kept = KeptPrompt(
        model.model if model.url else "offline",
        [PromptMessage(message["role"], message["content"]) for message in messages],
        tools_of(prompt.offer),
        [
            PromptMemory(
                str(memory.id),
                memory.content,
                memory.score,
                memory.significance,
                memory.created_at,
                memory.speaker,
                memory.memory_type,
                memory.superseded,
                memory.place,
                WhyRecalled(memory.relevance, memory.cosine, memory.keyword),
            )
            for memory in prompt.memories
        ],
        settings,
    )
    return MadePrompt(msgspec.json.encode(kept).decode(), removals)
