"""Assembles a prompt from all layers, within each layer's token budget. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from foremind.domain.actions import Offer
from foremind.domain.companion_rules import Behaviour
from foremind.domain.memory import Recalled
from foremind.domain.policy import LayerPolicy
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.world import NOWHERE, Surroundings
from foremind.llm.acting import offered
from foremind.llm.prompt.character import Character
from foremind.llm.prompt.layout import RECALLED_ORDER, STANDING_ORDER, PastTurn, Prompt
from foremind.llm.prompt.sections import Section, section
from foremind.llm.prompt.token_budget import BudgetShare, allocate_tokens
from foremind.llm.prompt.token_counter import CountTokens, counter_for
from foremind.lore.activation import NO_LORE, ActiveLore
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import date_in, emotions_in, prompt_words
from foremind.text.sentences import sentence_keys_in
from foremind.text.tokenization import words_of


def active_behaviours(
    behaviours: Sequence[Behaviour],
    message: str,
    *,
    recalled: Collection[LayerName],
    opening: bool,
    now: datetime,
) -> list[Behaviour]:
    """Return the behaviours whose conditions are all met.

    Args:
        recalled: the layers that returned something for the message.
        opening: whether it is the first message of a session.
        now: in the player's time zone.
    """
    listening = any(behaviour.says for behaviour in behaviours)
    padded = _padded_words(message) if listening else ""
    return [
        behaviour
        for behaviour in behaviours
        if (not behaviour.says or any(_padded_words(phrase) in padded for phrase in behaviour.says))
        and (behaviour.recalls is None or behaviour.recalls in recalled)
        and (behaviour.opening is None or behaviour.opening == opening)
        and _in_hours(behaviour, now.hour)
    ]


def _padded_words(text: str) -> str:
    return f" {' '.join(words_of(text))} "


def _in_hours(behaviour: Behaviour, hour: int) -> bool:
    start, end = behaviour.from_hour, behaviour.to_hour
    if start is None or end is None:
        return (start is None or hour >= start) and (end is None or hour < end)
    return start <= hour < end if start <= end else hour >= start or hour < end


MAX_TURNS = 400  # of a session that are kept for a prompt, however many fit
_CHARS_PER_TOKEN = 16  # upper bound for any text
_ROLE_TOKENS = 4  # of a message's role markers
_DATE_TOKENS = 16  # of today's date
_INSTRUCTION_TOKENS = 10  # of the tags around instructions
_LORE_TAG_TOKENS = 8  # of the tags or line breaks around an entry
_MAX_COMPARED_CHARS = 2000  # of a message whose sentences are omitted from recalled layers
_MIN_TURNS = 3  # that are always included
_PREFERRED_TURNS = 10
# A sentence in several sections is shown in the first. Where the last session ended is told as a
# whole.
_STANDING_PRECEDENCE: tuple[LayerName, ...] = (
    "opening", "profile", "hot", "scratchpad", "summary",
)  # fmt: skip
# A note is about the user and dated, and takes less room than the memory it is made of.
_RECALLED_PRECEDENCE: tuple[LayerName, ...] = (
    "state", "vault", "questions", "scratchpad", "memories", "topics", "episodes", "library",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AssembledPrompt:
    """A prompt, the tokens that each layer takes of it, and the behaviours to run after the reply.

    `spare` is how many more tokens the layers may take. `shares` is what is shown of each layer.
    """

    prompt: Prompt
    tokens: Mapping[LayerName, int]
    post_reply_behaviours: Sequence[Behaviour]
    spare: int
    shares: Sequence[BudgetShare] = ()


def assemble(
    character: Character,
    policy: LayerPolicy,
    *,
    user_name: str,
    standing: Mapping[LayerName, Section],
    recalled: Mapping[LayerName, Section],
    memories: Sequence[Recalled],
    history: Sequence[PastTurn],
    message: str,
    opening: bool,
    now: datetime,
    lore: ActiveLore = NO_LORE,
    language: str = ENGLISH,
    around: Surroundings = NOWHERE,
    offer: Offer | None = None,
) -> AssembledPrompt:
    """Return the prompt for a message.

    The layers together get a share of the model's context, each layer its own share of that; unused
    tokens are redistributed by priority. The history gets the rest, the last three turns if they
    fit. A sentence of a layer appears once: not if the history has it, and of two layers in the
    first, standing before recalled ones. Lore that does not fit beside all that is left out.

    Args:
        opening: whether this is the session's first turn.
        now: in the player's time zone.
        language: of the words that are neither the companion's nor quoted.
    """
    count = counter_for(policy.tokenizer)
    behaviours = _behaviours(policy, message, recalled, opening=opening, now=now)
    instructions = [behaviour.instruction for behaviour in behaviours if not behaviour.after]
    turns = without_repeated(history, message) if policy.on("working") else ()
    fixed_tokens = _fixed_tokens(character, user_name, message, language, now, count)
    if policy.emotions:
        fixed_tokens += count(emotions_in(language, policy.emotions)) + _INSTRUCTION_TOKENS
    fixed_tokens += sum(count(line) + 1 for line in offered(offer))
    lore, lore_tokens = _fitting_lore(policy, lore, turns, fixed_tokens, count)
    allocation = _allocate(
        policy,
        _standing_sections(policy, standing, instructions, count, opening=opening),
        _recalled_sections(policy, standing, recalled),
        turns,
        message,
        fixed_tokens + lore_tokens,
        count,
    )
    shares = [*allocation.standing, *allocation.recalled]
    prompt = Prompt(
        companion_name=character.name,
        persona=character.persona,
        user_name=user_name,
        memories=tuple(memories[number] for number in _shown_lines(shares, "memories")),
        history=tuple(allocation.window),
        message=message,
        now=now,
        standing=_ordered(allocation.standing, STANDING_ORDER),
        recalled=_ordered(allocation.recalled, RECALLED_ORDER),
        instructions=tuple(instructions[number] for number in _shown_lines(shares, "behaviours")),
        lore=lore,
        closing=character.closing,
        language=language,
        emotions=policy.emotions,
        around=around,
        offer=offer,
    )
    after = [behaviour for behaviour in behaviours if behaviour.after]
    return AssembledPrompt(prompt, allocation.tokens, after, allocation.spare, shares)


def _behaviours(
    policy: LayerPolicy,
    message: str,
    recalled: Mapping[LayerName, Section],
    *,
    opening: bool,
    now: datetime,
) -> list[Behaviour]:
    """Return the behaviours that a message activates."""
    configured = policy.behaviours if policy.on("behaviours") else ()
    non_empty = {layer for layer, layer_section in recalled.items() if layer_section.lines}
    return active_behaviours(configured, message, recalled=non_empty, opening=opening, now=now)


def _fixed_tokens(
    character: Character,
    user_name: str,
    message: str,
    language: str,
    now: datetime,
    count: CountTokens,
) -> int:
    """Return the tokens of what every prompt for a message contains."""
    rules = prompt_words(language).rules
    tokens: int = count(character.persona + user_name + rules + message + character.closing)
    return tokens + max(0, count(date_in(language, now)) - _DATE_TOKENS)


def _fitting_lore(
    policy: LayerPolicy,
    lore: ActiveLore,
    turns: Sequence[PastTurn],
    fixed_tokens: int,
    count: CountTokens,
) -> tuple[ActiveLore, int]:
    """Return the lore that fits the model's context, and its tokens with those around it."""
    if not lore.entries:
        return lore, 0
    last_turns = sum(count(turn.content) + _ROLE_TOKENS for turn in turns[-_MIN_TURNS:])
    around = _LORE_TAG_TOKENS * len(lore.entries)
    taken = policy.reply_tokens + _ROLE_TOKENS + _DATE_TOKENS + fixed_tokens + last_turns + around
    lore = lore.within(max(0, policy.context_tokens - taken), context_is_full=True)
    return lore, lore.tokens + _LORE_TAG_TOKENS * len(lore.entries)


def _standing_sections(
    policy: LayerPolicy,
    standing: Mapping[LayerName, Section],
    instructions: Sequence[str],
    count: CountTokens,
    *,
    opening: bool,
) -> list[Section]:
    """Return the sections that do not depend on what was recalled, in order of precedence."""
    sections = [
        section("behaviours", [f"- {instruction.strip()}" for instruction in instructions], count)
    ]
    sections += [
        standing[layer] for layer in _STANDING_PRECEDENCE if layer in standing and policy.on(layer)
    ]
    return [
        layer_section
        for layer_section in sections
        if layer_section.lines and (layer_section.layer != "opening" or opening)
    ]


def _recalled_sections(
    policy: LayerPolicy,
    standing: Mapping[LayerName, Section],
    recalled: Mapping[LayerName, Section],
) -> list[Section]:
    """Return the recalled sections and the session state, in order of precedence."""
    sections = dict(recalled)
    if "state" in standing:  # the game changes it often, so it is placed last
        sections["state"] = standing["state"]
    return [
        sections[layer]
        for layer in _RECALLED_PRECEDENCE
        if layer in sections and sections[layer].lines and policy.on(layer)
    ]


@dataclass(frozen=True, slots=True)
class _Allocation:
    """How a context is divided between layers and history."""

    standing: Sequence[BudgetShare]
    recalled: Sequence[BudgetShare]
    window: Sequence[PastTurn]
    tokens: Mapping[LayerName, int]
    spare: int


def _allocate(
    policy: LayerPolicy,
    standing: Sequence[Section],
    recalled: Sequence[Section],
    turns: Sequence[PastTurn],
    message: str,
    fixed_tokens: int,
    count: CountTokens,
) -> _Allocation:
    """Divide the context between layers and history; no layer repeats sentences of the history.

    Args:
        fixed_tokens: what persona, name, rules, message and lore take.
    """
    available_tokens = (
        policy.context_tokens - policy.reply_tokens - _ROLE_TOKENS - _DATE_TOKENS - fixed_tokens
    )
    message_sentences = sentence_keys_in(message[:_MAX_COMPARED_CHARS])
    costs = [count(turn.content) + _ROLE_TOKENS for turn in turns]
    layer_limit = max(
        0,
        min(int(policy.context_tokens * policy.share), available_tokens - sum(costs[-_MIN_TURNS:])),
    )
    preferred_tokens = max(policy.working_tokens, sum(costs[-_PREFERRED_TURNS:]))
    window_turns = _fitting_turns(costs, min(preferred_tokens, available_tokens - layer_limit))
    for _ in range(2):
        window = turns[len(turns) - window_turns :]
        history_sentences = frozenset[int]().union(*(turn.says for turn in window))
        standing_shares = [BudgetShare(layer_section) for layer_section in standing]
        by_layer = {share.section.layer: share for share in standing_shares}
        recalled_shares = [
            BudgetShare(layer_section, message_sentences, by_layer.get(layer_section.layer))
            for layer_section in recalled
        ]
        shares = [*standing_shares, *recalled_shares]
        layer_tokens = allocate_tokens(
            standing_shares, recalled_shares, layer_limit, history_sentences, count
        )
        longer_turns = _fitting_turns(costs, min(preferred_tokens, available_tokens - layer_tokens))
        if longer_turns <= window_turns:
            break
        # Tokens that the layers leave unused go to a longer history, which the layers must not
        # repeat either.
        window_turns = longer_turns
        layer_limit = min(layer_limit, available_tokens - sum(costs[len(costs) - window_turns :]))
    tokens = _tokens_by_layer(shares)
    window_tokens = sum(costs[len(costs) - window_turns :])
    if window:
        tokens["working"] = window_tokens
    spare = min(layer_limit - layer_tokens, available_tokens - layer_tokens - window_tokens)
    return _Allocation(standing_shares, recalled_shares, window, tokens, spare)


def _ordered(shares: Sequence[BudgetShare], layers: Sequence[LayerName]) -> tuple[Section, ...]:
    """Return what is shown of some layers, in the order of `layers`."""
    shown = {share.section.layer: share.shown() for share in shares if share.tokens}
    return tuple(shown[layer] for layer in layers if layer in shown)


def _shown_lines(shares: Sequence[BudgetShare], layer: LayerName) -> list[int]:
    """Return the numbers of a layer's lines whose content is in the prompt, in any layer."""
    share = next((share for share in shares if share.section.layer == layer), None)
    return [] if share is None else share.numbers()


def _tokens_by_layer(shares: Sequence[BudgetShare]) -> dict[LayerName, int]:
    tokens: dict[LayerName, int] = {}
    for share in shares:
        if share.tokens:
            tokens[share.section.layer] = tokens.get(share.section.layer, 0) + share.tokens
    return tokens


def without_repeated(turns: Sequence[PastTurn], message: str) -> Sequence[PastTurn]:
    """Return turns without the trailing unanswered ones that equal `message`."""
    answered = len(turns)
    while answered and turns[answered - 1].speaker == "user":
        answered -= 1
    stripped = message.strip()
    unanswered = [turn for turn in turns[answered:] if turn.content.strip() != stripped]
    if len(unanswered) == len(turns) - answered:
        return turns
    return [*turns[:answered], *unanswered]


def recent_turns(turns: Sequence[PastTurn], context_tokens: int) -> list[PastTurn]:
    """Return the last turns that a prompt may need, at least the newest."""
    newest = list(turns[-MAX_TURNS:])
    chars = [len(turn.content) for turn in newest]
    return newest[-max(1, _fitting_turns(chars, context_tokens * _CHARS_PER_TOKEN)) :]


def _fitting_turns(costs: Sequence[int], limit: int) -> int:
    """Return how many of the last turns fit the limit."""
    used = 0
    for fitting, cost in enumerate(reversed(costs)):
        used += cost
        if used > limit:
            return fitting
    return len(costs)
