"""Evidence recall: of the turns that answer a question, how many does the search bring back?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, median

import msgspec
import numpy as np

from foremind.app import Core
from foremind.companions import CompanionSettings
from foremind.evaluation.dialogues import Dialogue
from foremind.evaluation.told import Told, Vectors, tell
from foremind.evaluation.variants import Variant
from foremind.layers.tokens import estimate_tokens
from foremind.layers.wording import memory_line
from foremind.memory.ranking import Recalled
from foremind.memory.search import Query
from foremind.policies import policy_for

CUTOFFS = (5, 10, 20)
_RESAMPLES = 1000  # of the bootstrap


class RecallReport(msgspec.Struct, frozen=True, rename={
    "recall_at_5": "recall@5", "recall_at_10": "recall@10", "recall_at_20": "recall@20",
    "recall_at_10_interval": "recall@10_interval",
}):  # fmt: skip
    """Shares are 0 to 1; `search_ms_p50` is milliseconds without embedding.

    The interval is the 95% bootstrap interval over questions. `asked_kept` is the share of the
    turns asked about that became memories, `others_dropped` that of the others that did not.
    `context_tokens` and `filler_memories` are means, of the context of a question and of the
    memories that a turn not worth keeping would recall; None where every turn was kept.
    """

    name: str
    recall_at_5: float
    recall_at_10: float
    recall_at_20: float
    recall_at_10_interval: tuple[float, float]
    questions: int
    stored_fraction: float
    asked_kept: float
    others_dropped: float
    context_tokens: float
    filler_memories: float | None
    search_ms_p50: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """What one question brought back: which of the ranks are evidence, of how many."""

    ranks: list[bool]
    evidence: int
    tokens: int
    search_ms: float


async def measure(
    core: Core,
    dialogues: Sequence[Dialogue],
    variants: Sequence[Variant],
    advance: Callable[[int], None],
) -> list[RecallReport]:
    """Tell every dialogue through the real store and ask its questions through the real search.

    Questions are asked a day after the last turn. `advance` is told of finished steps.
    """
    vectors = Vectors(core)
    told: dict[str, list[Told]] = {}
    reports = []
    for variant in variants:
        if variant.telling not in told:
            told[variant.telling] = [
                await tell(core, each, f"{len(told)}", variant.settings, vectors, advance)
                for each in dialogues
            ]
        reports.append(await _ask_all(core, told[variant.telling], variant, vectors, advance))
    return reports


def steps(dialogues: Sequence[Dialogue], variants: Sequence[Variant]) -> int:
    """Return how many steps `measure` will report."""
    turns = sum(len(each.turns) for each in dialogues)
    questions = sum(len(each.questions) for each in dialogues)
    return turns * len({each.telling for each in variants}) + questions * len(variants)


async def _ask_all(
    core: Core,
    told: Sequence[Told],
    variant: Variant,
    vectors: Vectors,
    advance: Callable[[int], None],
) -> RecallReport:
    asked: list[_Asked] = []
    filler: list[int] = []
    for each in told:
        now = each.dialogue.turns[-1].said_at + timedelta(days=1)
        for question in each.dialogue.questions:
            text = question.text
            started, found = await _search(core, each, text, variant.settings, vectors, now)
            elapsed = (time.perf_counter() - started) * 1000
            wanted = {each.memory_of.get(turn) for turn in question.evidence}
            asked.append(
                _Asked(
                    [memory.id in wanted for memory in found],
                    len(question.evidence),
                    _tokens(found[: core.settings.recall_limit], each.dialogue.user_name, now),
                    elapsed,
                )
            )
            advance(1)
        for turn in each.filler:
            _, found = await _search(core, each, turn.text, variant.settings, vectors, now)
            filler.append(len(found[: core.settings.recall_limit]))
    return _report(variant.name, told, asked, filler)


async def _search(
    core: Core,
    told: Told,
    text: str,
    settings: CompanionSettings,
    vectors: Vectors,
    now: datetime,
) -> tuple[float, list[Recalled]]:
    """Return when the search began, on the performance counter, and what it found."""
    limited = msgspec.structs.replace(settings, recall_limit=max(CUTOFFS))
    policy = policy_for(limited, core.settings).recall
    vector = await vectors.of(text)
    started = time.perf_counter()
    found = await core.search.search(Query(told.relationship_id, text, vector, policy, now))
    return started, found


def _tokens(found: Sequence[Recalled], user_name: str, now: datetime) -> int:
    return sum(estimate_tokens(memory_line(each, user_name, now)) for each in found)


def _report(
    name: str, told: Sequence[Told], asked: Sequence[_Asked], filler: Sequence[int]
) -> RecallReport:
    shares = {
        cutoff: [sum(each.ranks[:cutoff]) / each.evidence for each in asked] for cutoff in CUTOFFS
    }
    kept, others, said = _kept(told)
    return RecallReport(
        name=name,
        recall_at_5=round(fmean(shares[5]), 4),
        recall_at_10=round(fmean(shares[10]), 4),
        recall_at_20=round(fmean(shares[20]), 4),
        recall_at_10_interval=_interval(shares[10]),
        questions=len(asked),
        stored_fraction=round(sum(len(each.memory_of) for each in told) / said, 4),
        asked_kept=round(kept, 4),
        others_dropped=round(others, 4),
        context_tokens=round(fmean(each.tokens for each in asked), 1),
        filler_memories=round(fmean(filler), 2) if filler else None,
        search_ms_p50=round(median(each.search_ms for each in asked), 3),
    )


def _kept(told: Sequence[Told]) -> tuple[float, float, int]:
    """Return the share kept of the turns asked about, that dropped of the others, and all turns."""
    asked_kept, others_dropped = [], []
    for each in told:
        wanted = frozenset().union(*(question.evidence for question in each.dialogue.questions))
        for turn in each.dialogue.turns:
            if turn.id in wanted:
                asked_kept.append(turn.id in each.memory_of)
            else:
                others_dropped.append(turn.id not in each.memory_of)
    return (
        fmean(asked_kept) if asked_kept else 0.0,
        fmean(others_dropped) if others_dropped else 0.0,
        len(asked_kept) + len(others_dropped),
    )


def _interval(shares: Sequence[float]) -> tuple[float, float]:
    """Return the 95% interval of the mean over resampled questions; the seed is fixed."""
    rng = np.random.default_rng(0)
    values = np.asarray(shares)
    means = [rng.choice(values, len(values)).mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    return round(float(low), 4), round(float(high), 4)
