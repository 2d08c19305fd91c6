"""Puts a prompt together from all layers, within the tokens that each may take. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from foremind.companions import Behaviour, Companion
from foremind.generation.prompt import RULES, PastTurn, Prompt
from foremind.layers.behaviours import holding
from foremind.layers.budget import share_out
from foremind.layers.sections import Section
from foremind.layers.tokens import counter_for
from foremind.memory.ranking import Recalled
from foremind.policies import LayerPolicy
from foremind.settings import LayerName

MOST_TURNS = 400  # of a session that are held for a prompt, whatever fits
_CHARS_PER_TOKEN = 16  # at most, of whatever is written
_OVERHEAD = 4  # tokens of a message's role markers
_BLOCK = 16  # tokens of a section's tags and, once, of today's date
_ALWAYS_TURNS = 3
_WANTED_TURNS = 10
# In the prompt's order: what changes least comes first.
_STANDING: tuple[LayerName, ...] = ("profile", "hot", "scratchpad", "summary", "opening")
_RECALLED: tuple[LayerName, ...] = (
    "topics", "episodes", "questions", "vault", "library", "memories", "state",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Assembled:
    """A prompt, the tokens that each layer takes of it, and behaviours to run afterwards.

    `spare` are tokens that the layers might still take.
    """

    prompt: Prompt
    tokens: Mapping[LayerName, int]
    afterwards: Sequence[Behaviour]
    spare: int


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
) -> Assembled:
    """Return what a companion's language model is given for a message.

    The layers together take their share of the model's context, each its own share of that, and
    what is left over goes round by priority. The turns so far take what they may of the rest: the
    last three always, as far as the context has room at all.

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
    instructions = [each.instruction for each in behaviours if not each.after]
    shown = {
        layer: each
        for layer, each in (*standing.items(), *recalled.items())
        if policy.on(layer) and each.lines and (layer != "opening" or opening)
    }
    costs: dict[LayerName, Sequence[int]] = {
        layer: (each.tokens[0] + _BLOCK, *each.tokens[1:]) for layer, each in shown.items()
    }
    if instructions:
        costs["behaviours"] = [count(each) + _OVERHEAD for each in instructions]
    room = (
        policy.context_tokens
        - policy.reply_tokens
        - _OVERHEAD
        - count(companion.persona + user_name + RULES + message)
    )
    turns = without_repeated(history, message) if policy.on("working") else ()
    spoken = [count(turn.content) + _OVERHEAD for turn in turns]
    always = sum(spoken[-_ALWAYS_TURNS:])
    most = max(0, min(int(policy.context_tokens * policy.share), room - always))
    kept = share_out(costs, most)
    used = {layer: sum(costs[layer][:number]) for layer, number in kept.items() if number}
    taken = sum(used.values())
    left = room - taken
    wanted = max(policy.working_tokens, sum(spoken[-_WANTED_TURNS:]))
    newest = _newest_within(spoken, min(wanted, left))
    window = turns[len(turns) - newest :]
    if window:
        used["working"] = sum(spoken[-newest:])
    spare = min(most - taken, left - used.get("working", 0))

    def laid(layers: Sequence[LayerName]) -> tuple[Section, ...]:
        return tuple(shown[each].first(kept[each]) for each in layers if kept.get(each))

    prompt = Prompt(
        companion_name=companion.name,
        persona=companion.persona,
        user_name=user_name,
        memories=tuple(memories[: kept.get("memories", 0)]),
        history=tuple(window),
        message=message,
        now=now,
        standing=laid(_STANDING),
        recalled=laid(_RECALLED),
        instructions=tuple(instructions[: kept.get("behaviours", 0)]),
    )
    return Assembled(prompt, used, [each for each in behaviours if each.after], spare)


def without_repeated(turns: Sequence[PastTurn], message: str) -> Sequence[PastTurn]:
    """Return turns without those that were not answered and that `message` says again."""
    answered = len(turns)
    while answered and turns[answered - 1].speaker == "user":
        answered -= 1
    said = message.strip()
    tail = [each for each in turns[answered:] if each.content.strip() != said]
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
