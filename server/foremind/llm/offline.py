"""The chat model used without a language model: it quotes recalled memories in fixed phrases."""

import re
from collections.abc import AsyncGenerator

from foremind.domain.memory import NARRATED_TYPES, Recalled
from foremind.llm.prompt.layout import Prompt
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.time_ago import age_in_words

# Below this relevance a recalled memory is a coincidence rather than an answer.
_RELEVANT = 0.30
_PIECE = re.compile(r"\S+\s*")
_QUESTION = re.compile(
    r"\?|^\s*(?:who|what|when|where|why|how|which|do|does|did|is|are|was|were|can|could|"
    r"remember|tell me)\b",
    re.IGNORECASE,
)
_LISTENING = (
    "I hear you. Go on, I'm listening.",
    "Mm. Say more, if you like. I've got time.",
    "That's worth a thought. What happened then?",
    "All right. Was it what you expected?",
)
_UNKNOWN = (
    "I don't think you've told me that yet.",
    "That one I don't know. You'd have to tell me.",
    "I've turned it over, and I can't remember you saying.",
)


class OfflineChatModel:
    """Replies with a few fixed phrases around quoted memories."""

    is_generative = False

    async def stream_reply(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply word by word."""
        for piece in _PIECE.findall(compose(prompt)):
            yield piece


def compose(prompt: Prompt) -> str:
    """Return the whole reply; it is deterministic."""
    is_question = bool(_QUESTION.search(prompt.message))
    known = [
        memory
        for memory in prompt.memories
        if memory.relevance >= _RELEVANT
        and (memory.speaker == "user" or memory.memory_type in NARRATED_TYPES)
        and memory.content.strip().casefold() != prompt.message.strip().casefold()
        and not (is_question and memory.content.rstrip().endswith(QUESTION_MARKS))
    ]
    turn = len(prompt.history) // 2
    if is_question and known:
        return " ".join(["Yes.", *(_recollection(memory, prompt) for memory in known[:2])])
    if is_question:
        return _UNKNOWN[turn % len(_UNKNOWN)]
    if known:
        return f"I'll keep that. It brings something back: {_recollection(known[0], prompt)}"
    return _LISTENING[turn % len(_LISTENING)]


def _recollection(memory: Recalled, prompt: Prompt) -> str:
    age = age_in_words(memory.created_at, prompt.now)
    how = "this happened" if memory.memory_type in NARRATED_TYPES else "you told me"
    return f"{age[0].upper()}{age[1:]} {how}: “{memory.content.strip()}”"
