"""How much a turn matters, 0 to 1, and why. Pure.

The largest of four: what the published signals add up to, the floors of what always matters, what a
short answer answers, and what a small head has learned of utterances that people are asked about
later. The signals alone keep hardly more of those than chance would.
"""

import math
from dataclasses import dataclass

from foremind.domain.companion import SignificanceRules
from foremind.domain.memory import Reason
from foremind.memory.minimum_scores import floors_in
from foremind.memory.scoring_signals import signals_in
from foremind.text.tokenization import MOST_CHARS

# The learned head says "worth keeping" at log odds 0, which is the default threshold of 0.30, and
# never more than twice that: only what can be named in words raises a turn above it.
_LEARNED_AT_BOUNDARY = 0.30
_LEARNED_SLOPE = 2.0


@dataclass(frozen=True, slots=True)
class SignificanceScore:
    """A score from 0 to 1, and every reason that counted towards it, largest first."""

    score: float
    reasons: tuple[Reason, ...]


def judge(
    text: str, learned: float | None, rules: SignificanceRules, answer: float = 0.0
) -> SignificanceScore:
    """Judge what was said.

    Args:
        learned: the keeping head's log odds for the text, None where the model has no head.
        rules: the companion's own phrases, weights and floors.
        answer: what it is worth at least for what it answers (see `answers`), 0 to 1.
    """
    text = text[:MOST_CHARS]
    signals = [
        Reason(each.name, (rules.signals or {}).get(each.name, each.weight))
        for each in signals_in(text)
    ]
    floors = _floors(text, rules, answer)
    reasons = [each for each in (*signals, *floors) if each.score > 0]
    score = max(
        [sum(signal.score for signal in signals), *(floor.score for floor in floors)], default=0.0
    )
    if learned is not None and rules.learned is not False:
        worth = 2 * _LEARNED_AT_BOUNDARY / (1 + math.exp(-_LEARNED_SLOPE * learned))
        score = max(score, worth)
        if round(worth, 2) > 0:
            reasons.append(Reason("learned", round(worth, 2)))
    reasons.sort(key=lambda each: -each.score)
    return SignificanceScore(round(min(1.0, score), 2), tuple(reasons))


def judge_rated(
    text: str, rating: int, rules: SignificanceRules, answer: float = 0.0
) -> SignificanceScore:
    """Judge what was said by a language model's rating of its poignancy, 1 to 10.

    A tenth of it is the significance: by the defaults 1 and 2 are not kept, 9 and 10 never fade.
    The rating takes the place of what adds up and of what was learned, but of no floor.
    """
    reasons = sorted(
        (Reason("model", rating / 10), *_floors(text, rules, answer)),
        key=lambda each: -each.score,
    )
    return SignificanceScore(reasons[0].score, tuple(reasons))


def _floors(text: str, rules: SignificanceRules, answer: float) -> list[Reason]:
    """Return the floors that hold for a text, the companion's own phrases among them."""
    text = text[:MOST_CHARS]
    said = text.casefold()
    return [
        *(
            Reason(each.name, (rules.floors or {}).get(each.name, each.score))
            for each in floors_in(text)
        ),
        *(
            Reason("companion's phrase", score)
            for phrase, score in (rules.phrases or {}).items()
            if phrase.casefold() in said
        ),
        *([Reason("answer", answer)] if answer else []),
    ]
