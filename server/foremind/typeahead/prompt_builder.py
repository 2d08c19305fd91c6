"""Builds the prompt for a draft or message, in sessions and in previews alike. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from foremind.domain.actions import Offer
from foremind.domain.companion import Companion
from foremind.domain.policy import LayerPolicy
from foremind.domain.session_state import NO_STATE, SessionState
from foremind.domain.world import NOWHERE, Surroundings
from foremind.llm.prompt.assembly import AssembledPrompt, assemble
from foremind.llm.prompt.character import character_of, last_turn_of, opening_line
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import StandingLayers, state_section
from foremind.llm.prompt.token_counter import counter_for
from foremind.lore.activation import NO_LORE, ActiveLore
from foremind.text.languages.language_files import ENGLISH
from foremind.typeahead.context_cache import PreparedContext


@dataclass(frozen=True, slots=True)
class ConversationSnapshot:
    """What was said in a session before a message, and the session's state.

    `now` is in the player's time zone. `session` identifies the session, for what a card draws at
    random; `greeting` is the number of the greeting it was opened with, `language`
    that of the prompt; `around` where it is said, in a world, and `offer` what can be done there.
    """

    user_name: str
    history: Sequence[PastTurn]
    now: datetime
    state: SessionState = NO_STATE
    session: str = ""
    greeting: int = 0
    language: str = ENGLISH
    around: Surroundings = NOWHERE
    offer: Offer | None = None


def build_prompt(
    companion: Companion,
    policy: LayerPolicy,
    conversation: ConversationSnapshot,
    standing: StandingLayers,
    context: PreparedContext | None,
    message: str,
    lore: ActiveLore = NO_LORE,
) -> AssembledPrompt:
    """Return the prompt for a message; without a context, it contains no recalled layers."""
    count = counter_for(policy.tokenizer)
    state = state_section(conversation.state, count, conversation.language)
    user_name, session = conversation.user_name, conversation.session
    # Where there is no summary to show, what it covered is shown itself.
    summarised = "summary" in standing.sections and policy.on("summary")
    history = without_summarised(
        conversation.history, standing.summarised_turn_id if summarised else 0
    )
    if len(history) == len(conversation.history):
        greeting = opening_line(companion, conversation.greeting, user_name, session)
        history = [*([PastTurn("companion", greeting)] if greeting else ()), *history]
    last_turn = last_turn_of(history)
    return assemble(
        character_of(companion, user_name, session, last_turn, policy.context_tokens, count),
        policy,
        user_name=user_name,
        standing={**standing.sections, "state": state},
        recalled={} if context is None else context.recalled,
        memories=() if context is None else context.memories,
        history=history,
        message=message,
        opening=not conversation.history,
        now=conversation.now,
        lore=lore,
        language=conversation.language,
        around=conversation.around,
        offer=conversation.offer,
    )


def without_summarised(turns: Sequence[PastTurn], upto: int) -> list[PastTurn]:
    """Return the turns after the last summarised one, whose id is `upto`."""
    return [turn for turn in turns if turn.id is None or turn.id > upto]
