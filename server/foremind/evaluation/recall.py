"""Evidence recall: of the turns that answer a question, how many does the search bring back?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, median

import msgspec
import numpy as np

from foremind.app import Core
from foremind.domain.memory import Recalled
from foremind.domain.policy import policy_for
from foremind.evaluation.dialogues import Dialogue, DialogueTurn, Question
from foremind.evaluation.replay import ReplayedDialogue, VectorCache, tell
from foremind.evaluation.variants import Variant
from foremind.llm.prompt.record_format import memory_line
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.search import Query

CUTOFFS = (5, 10, 20)
_RESAMPLES = 1000  # of the bootstrap


class RecallReport(msgspec.Struct, frozen=True, rename={
    "recall_at_5": "recall@5", "recall_at_10": "recall@10", "recall_at_20": "recall@20",
    "recall_at_10_interval": "recall@10_interval",
}):  # fmt: skip
    """Shares are 0 to 1; `search_ms_p50` is milliseconds without embedding.

    The interval is the 95% bootstrap interval over questions. `asked_kept` is the share of the
    turns asked about that became memories, `others_dropped` that of the others that did not.
    `memories` is how many come back for a question.
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
    memories: float
    context_tokens: float
    filler_memories: float | None
    search_ms_p50: float


@dataclass(frozen=True, slots=True)
class _RecallResult:
    """What one question brought back: which of the ranks are evidence, of how many.

    `memories` and `tokens` are those of a prompt.
    """

    memories: int
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

    A question is asked where the dialogue says, of what was told until then, or else a day after
    the last turn. `advance` is told of finished steps.
    """
    vectors = VectorCache(core)
    reports: dict[str, RecallReport] = {}
    tellings = list(dict.fromkeys(variant.telling for variant in variants))
    for number, telling in enumerate(tellings):
        askers = [
            _QuestionRunner(core, variant, vectors, advance)
            for variant in variants
            if variant.telling == telling
        ]

        async def ask_in_place(
            told: ReplayedDialogue, first: DialogueTurn, askers: list[_QuestionRunner] = askers
        ) -> None:
            for asker in askers:
                await asker.ask(told, first.session, first.said_at)

        told = []
        for dialogue in dialogues:
            settings = askers[0].variant.settings
            told.append(
                await tell(core, dialogue, f"{number}", settings, vectors, advance, ask_in_place)
            )
            for asker in askers:
                await asker.ask_afterwards(told[-1])
        for asker in askers:
            reports[asker.variant.name] = _report(
                asker.variant.name, told, asker.asked, asker.filler
            )
    return [reports[variant.name] for variant in variants]


def steps(dialogues: Sequence[Dialogue], variants: Sequence[Variant]) -> int:
    """Return how many steps `measure` will report."""
    turns = sum(len(dialogue.turns) for dialogue in dialogues)
    questions = sum(len(dialogue.questions) for dialogue in dialogues)
    return turns * len({variant.telling for variant in variants}) + questions * len(variants)


class _QuestionRunner:
    """Asks the questions of dialogues in one variant's way, and keeps what came back."""

    def __init__(
        self, core: Core, variant: Variant, vectors: VectorCache, advance: Callable[[int], None]
    ) -> None:
        self.variant = variant
        self.asked: list[_RecallResult] = []
        self.filler: list[int] = []
        self._core = core
        self._vectors = vectors
        self._advance = advance

    async def ask(self, told: ReplayedDialogue, before: str | None, now: datetime) -> None:
        """Ask the questions whose place is here, of what has been told."""
        for question in told.dialogue.questions:
            if question.asked_before == before:
                self.asked.append(await self._ask(told, question, now))
                self._advance(1)

    async def ask_afterwards(self, told: ReplayedDialogue) -> None:
        """Ask the others a day after the last turn, and say what was not worth keeping again."""
        now = told.dialogue.turns[-1].said_at + timedelta(days=1)
        await self.ask(told, None, now)
        limit = self._core.settings.recall_limit
        for turn in told.filler:
            _, found = await self._search(told, turn.text, now)
            self.filler.append(len(found[:limit]))

    async def _ask(
        self, told: ReplayedDialogue, question: Question, now: datetime
    ) -> _RecallResult:
        started, found = await self._search(told, question.text, now)
        elapsed = (time.perf_counter() - started) * 1000
        wanted = {told.memory_of.get(turn) for turn in question.evidence}
        limit = self._core.settings.recall_limit
        return _RecallResult(
            len(found[:limit]),
            [memory.id in wanted for memory in found],
            len(question.evidence),
            _tokens(found[:limit], told.dialogue.user_name, now),
            elapsed,
        )

    async def _search(
        self, told: ReplayedDialogue, text: str, now: datetime
    ) -> tuple[float, list[Recalled]]:
        """Return when the search began, on the performance counter, and what it found."""
        limited = msgspec.structs.replace(self.variant.settings, recall_limit=max(CUTOFFS))
        policy = policy_for(limited, self._core.settings).recall
        vector = await self._vectors.of(text)
        started = time.perf_counter()
        found = await self._core.search.search(
            Query(told.relationship_id, text, vector, policy, now)
        )
        return started, found


def _tokens(found: Sequence[Recalled], user_name: str, now: datetime) -> int:
    return sum(estimate_tokens(memory_line(each, user_name, now).text()) for each in found)


def _report(
    name: str,
    told: Sequence[ReplayedDialogue],
    asked: Sequence[_RecallResult],
    filler: Sequence[int],
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
        memories=round(fmean(each.memories for each in asked), 2),
        context_tokens=round(fmean(each.tokens for each in asked), 1),
        filler_memories=round(fmean(filler), 2) if filler else None,
        search_ms_p50=round(median(each.search_ms for each in asked), 3),
    )


def _kept(told: Sequence[ReplayedDialogue]) -> tuple[float, float, int]:
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
