"""Puts a prompt together from all layers, within the tokens that each may take. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from foremind.domain.companion import Behaviour, Companion
from foremind.domain.memory import Recalled
from foremind.domain.policy import LayerPolicy
from foremind.domain.settings import LayerName
from foremind.llm.prompt.behaviours import holding
from foremind.llm.prompt.layout import RULES, PastTurn, Prompt
from foremind.llm.prompt.sections import Section, section
from foremind.llm.prompt.token_budget import BudgetShare, share_out
from foremind.llm.prompt.token_counter import CountTokens, counter_for
from foremind.text.sentences import said_in

MOST_TURNS = 400  # of a session that are held for a prompt, whatever fits
_CHARS_PER_TOKEN = 16  # at most, of whatever is written
_OVERHEAD = 4  # tokens of a message's role markers
_DATE = 16  # tokens of today's date
_MOST_COMPARED = 2000  # characters of a message whose sentences nothing recalled repeats
_ALWAYS = 3  # turns
_WANTED_TURNS = 10
# In the prompt's order: what changes least comes first.
_STANDING: tuple[LayerName, ...] = ("profile", "hot", "scratchpad", "summary", "opening")
_SHOWN: tuple[LayerName, ...] = (
    "topics", "episodes", "scratchpad", "questions", "vault", "library", "memories", "state",
)  # fmt: skip
# Of two that hold a sentence the first tells it, which says best whose it is and of when.
_RECALLED: tuple[LayerName, ...] = (
    "state", "vault", "questions", "memories", "scratchpad", "topics", "episodes", "library",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AssembledPrompt:
    """A prompt, the tokens that each layer takes of it, and behaviours to run afterwards.

    `spare` are tokens that the layers might still take, `repeated` those that they would take more
    if no sentence were left out for standing elsewhere. `portions` are what each layer tells.
    """

    prompt: Prompt
    tokens: Mapping[LayerName, int]
    afterwards: Sequence[Behaviour]
    spare: int
    repeated: int = 0
    portions: Sequence[BudgetShare] = ()


def assemble(
    companion: Companion,
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
) -> AssembledPrompt:
    """Return what a companion's language model is given for a message.

    The layers together take their share of the model's context, each its own share of that, and
    what is left over goes round by priority. The turns so far take what they may of the rest: the
    last three always, as far as the context has room at all. Each sentence of a layer stands once:
    not where the turns say it, and of two layers in the first, what stands in every prompt before
    what was recalled.

    Args:
        opening: nothing was said in this session yet.
        now: in the player's time zone.
    """
    count = counter_for(policy.tokenizer)
    found = {layer for layer, each in recalled.items() if each.lines}
    behaviours = holding(
        policy.behaviours if policy.on("behaviours") else (),
        message,
        recalled=found,
        opening=opening,
        now=now,
    )
    instructions = [behaviour.instruction for behaviour in behaviours if not behaviour.after]
    standing_now = _standing(policy, standing, instructions, count, opening=opening)
    beside = dict(recalled)
    if "state" in standing:  # it changes with every word of the game, and stands last
        beside["state"] = standing["state"]
    found_now = [
        beside[each]
        for each in _RECALLED
        if each in beside and beside[each].lines and policy.on(each)
    ]
    answered = said_in(message[:_MOST_COMPARED])

    def portions() -> list[BudgetShare]:
        return [
            *(BudgetShare(each) for each in standing_now),
            *(BudgetShare(each, answered) for each in found_now),
        ]

    room = (
        policy.context_tokens
        - policy.reply_tokens
        - _OVERHEAD
        - _DATE
        - count(companion.persona + user_name + RULES + message)
    )
    turns = without_repeated(history, message) if policy.on("working") else ()
    shared = _share(policy, portions, turns, room, count)
    shown = shared.portions
    prompt = Prompt(
        companion_name=companion.name,
        persona=companion.persona,
        user_name=user_name,
        memories=tuple(memories[each] for each in _told(shown, "memories")),
        history=tuple(shared.window),
        message=message,
        now=now,
        standing=_laid(shown[: len(standing_now)], _STANDING),
        recalled=_laid(shown[len(standing_now) :], _SHOWN),
        instructions=tuple(instructions[each] for each in _told(shown, "behaviours")),
    )
    return AssembledPrompt(
        prompt,
        shared.tokens,
        [behaviour for behaviour in behaviours if behaviour.after],
        shared.spare,
        sum(each.spared for each in shown),
        shown,
    )


def _standing(
    policy: LayerPolicy,
    standing: Mapping[LayerName, Section],
    instructions: Sequence[str],
    count: CountTokens,
    *,
    opening: bool,
) -> list[Section]:
    """Return what does not depend on what was recalled, in the order in which it is told."""
    told = [
        section("behaviours", [f"- {instruction.strip()}" for instruction in instructions], count)
    ]
    told += [standing[layer] for layer in _STANDING if layer in standing and policy.on(layer)]
    return [each for each in told if each.lines and (each.layer != "opening" or opening)]


@dataclass(frozen=True, slots=True)
class _TokenShares:
    """What layers and talk take of a context."""

    portions: Sequence[BudgetShare]
    window: Sequence[PastTurn]
    tokens: Mapping[LayerName, int]
    spare: int


def _share(
    policy: LayerPolicy,
    portions: Callable[[], list[BudgetShare]],
    turns: Sequence[PastTurn],
    room: int,
    count: CountTokens,
) -> _TokenShares:
    """Share the room between layers and talk; no layer repeats what the talk says."""
    spoken = [count(turn.content) + _OVERHEAD for turn in turns]
    most = max(0, min(int(policy.context_tokens * policy.share), room - sum(spoken[-_ALWAYS:])))
    wanted = max(policy.working_tokens, sum(spoken[-_WANTED_TURNS:]))
    newest = _newest_within(spoken, min(wanted, room - most))
    for _ in range(2):
        window = turns[len(turns) - newest :]
        said = frozenset[int]().union(*(each.says for each in window))
        shown = portions()
        taken = share_out(shown, most, said, count)
        longer = _newest_within(spoken, min(wanted, room - taken))
        if longer <= newest:
            break
        newest = longer  # what the layers leave is for talk, and what that says they do not repeat
        most = min(most, room - sum(spoken[len(spoken) - newest :]))
    used = _tokens_of(shown)
    talk = sum(spoken[len(spoken) - newest :])
    if window:
        used["working"] = talk
    return _TokenShares(shown, window, used, min(most - taken, room - taken - talk))


def _laid(portions: Sequence[BudgetShare], layers: Sequence[LayerName]) -> tuple[Section, ...]:
    """Return what is shown of some layers, in their order."""
    shown = {portion.section.layer: portion.shown() for portion in portions if portion.tokens}
    return tuple(shown[layer] for layer in layers if layer in shown)


def _told(portions: Sequence[BudgetShare], layer: LayerName) -> list[int]:
    """Return which lines of a layer the prompt tells, in the layer's own words or elsewhere."""
    told = next((portion for portion in portions if portion.section.layer == layer), None)
    return [] if told is None else told.numbers()


def _tokens_of(portions: Sequence[BudgetShare]) -> dict[LayerName, int]:
    used: dict[LayerName, int] = {}
    for portion in portions:
        if portion.tokens:
            used[portion.section.layer] = used.get(portion.section.layer, 0) + portion.tokens
    return used


def without_repeated(turns: Sequence[PastTurn], message: str) -> Sequence[PastTurn]:
    """Return turns without those that were not answered and that `message` says again."""
    answered = len(turns)
    while answered and turns[answered - 1].speaker == "user":
        answered -= 1
    said = message.strip()
    tail = [turn for turn in turns[answered:] if turn.content.strip() != said]
    return turns if len(tail) == len(turns) - answered else [*turns[:answered], *tail]


def newest_held(turns: Sequence[PastTurn], context_tokens: int) -> list[PastTurn]:
    """Return the last turns that a prompt may need, at least the newest."""
    newest = list(turns[-MOST_TURNS:])
    chars = [len(each.content) for each in newest]
    return newest[-max(1, _newest_within(chars, context_tokens * _CHARS_PER_TOKEN)) :]


def _newest_within(costs: Sequence[int], tokens: int) -> int:
    """Return how many of the last turns fit."""
    used = 0
    for kept, cost in enumerate(reversed(costs)):
        used += cost
        if used > tokens:
            return kept
    return len(costs)
