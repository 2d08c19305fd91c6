"""A companion's own texts as they are in a prompt, with the macros of its card replaced. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foremind.cards.card_fields import (
    character_name,
    closing_instructions,
    examples_of,
    greetings_of,
    opens_with_greeting,
)
from foremind.cards.card_macros import MacroValues, expand_card_macros
from foremind.domain.companion import Companion
from foremind.domain.user import NO_NAME
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.quoted_lines import without_tags
from foremind.llm.prompt.token_counter import CountTokens
from foremind.runtime.caches import erasable_cache

EXAMPLES_SHARE = 1 / 8  # of the model's context, at most, for the examples of a card
_CACHED = 64  # personas with their examples, of a few thousand characters each
#: What {{user}} stands for if the name is not known.
ANYBODY = "you"
_EXAMPLES = "How {{char}} talks, in examples:"


@dataclass(frozen=True, slots=True)
class Character:
    """The texts of a companion; `closing` are instructions that follow the history."""

    name: str
    persona: str
    closing: str = ""


def character_of(
    companion: Companion,
    user_name: str,
    conversation: str,
    last_turn: str,
    context_tokens: int,
    count: CountTokens,
) -> Character:
    """Return a companion's texts; macros are replaced only if it has a card.

    Args:
        conversation: identifies the session; in its persona everything is drawn once a session, so
            that a model server can reuse the head of the prompt.
        last_turn: what was said last; instructions that follow it are drawn anew each time.
        context_tokens: of the model.
    """
    if companion.card is None:
        return Character(companion.name, companion.persona)
    values = macro_values(companion, user_name, conversation)
    limit = int(context_tokens * EXAMPLES_SHARE)
    return Character(
        companion.name,
        _persona(companion.persona, tuple(examples_of(companion)), values, limit, count),
        without_tags(
            expand_card_macros(closing_instructions(companion), replace(values, moment=last_turn))
        ),
    )


def macro_values(companion: Companion, user_name: str, conversation: str) -> MacroValues:
    """Return what the macros of a companion's card stand for, all through a conversation."""
    user = ANYBODY if user_name == NO_NAME else user_name
    return MacroValues(character_name(companion), user, conversation)


def last_turn_of(history: Sequence[PastTurn]) -> str:
    """Return what tells the moment of a conversation, for what is drawn anew with each turn."""
    return f"{len(history)} {history[-1].content}" if history else ""


def greeting_of(companion: Companion, number: int, user_name: str, conversation: str) -> str:
    """Return a greeting as the player sees it; the first if there is none of this number."""
    greetings = greetings_of(companion)
    greeting = greetings[number] if number < len(greetings) else greetings[0]
    if companion.card is None:
        return greeting
    return expand_card_macros(greeting, macro_values(companion, user_name, conversation))


def opening_line(
    companion: Companion, number: int, user_name: str, conversation: str
) -> str | None:
    """Return the greeting that a prompt's history begins with, as a card's sets the scene."""
    if not opens_with_greeting(companion):
        return None
    return greeting_of(companion, number, user_name, conversation)


@erasable_cache(_CACHED)
def _persona(
    persona: str, examples: tuple[str, ...], values: MacroValues, limit: int, count: CountTokens
) -> str:
    """Return a persona with the first examples that fit a limit of tokens."""
    parts, tokens = [], 0
    for example in examples:
        expanded = expand_card_macros(example, values)
        tokens += count(expanded)
        if tokens > limit:
            break
        parts.append(expanded)
    head = [expand_card_macros(_EXAMPLES, values)] if parts else []
    return "\n\n".join([expand_card_macros(persona, values).strip(), *head, *parts])
