"""Evidence recall: the share of the turns that answer a question which the search returns."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, median

import msgspec
import numpy as np

from foremind.app.core import Core
from foremind.domain.memory import Recalled
from foremind.domain.policy import policy_for
from foremind.llm.prompt.sections import memory_line
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.search import Query
from foremind_eval.dialogue_replay import ReplayedDialogue, VectorCache, replay_dialogue
from foremind_eval.dialogues import Dialogue, DialogueTurn, Question
from foremind_eval.variants import Variant

CUTOFFS = (5, 10, 20)
_BOOTSTRAP_RESAMPLES = 1000


class RecallReport(msgspec.Struct, frozen=True, rename={
    "recall_at_5": "recall@5", "recall_at_10": "recall@10", "recall_at_20": "recall@20",
    "recall_at_10_interval": "recall@10_interval",
}):  # fmt: skip
    """Shares are 0 to 1; `search_ms_p50` is milliseconds without embedding.

    The interval is the 95% bootstrap interval over questions. `asked_kept` is the share of evidence
    turns that became memories, `others_dropped` the share of other turns that did not. Means:
    `memories` and `context_tokens` per question, and `filler_memories` that a turn which was not
    kept would recall, None if every turn was kept.
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
    """The search results for one question: which ranks are evidence, and of how many turns.

    `memories` and `tokens` count what would be in a prompt.
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
    """Replay every dialogue through the real store and ask its questions through the real search.

    A question is asked where the dialogue says, of the turns before it, or else a day after the
    last turn. `advance` is called with the number of completed steps (see `count_steps`).
    """
    vectors = VectorCache(core)
    reports: dict[str, RecallReport] = {}
    stores = list(dict.fromkeys(variant.store for variant in variants))
    for number, store in enumerate(stores):
        runners = [
            _QuestionRunner(core, variant, vectors, advance)
            for variant in variants
            if variant.store == store
        ]

        async def ask_in_place(
            replayed: ReplayedDialogue,
            first: DialogueTurn,
            runners: list[_QuestionRunner] = runners,
        ) -> None:
            for runner in runners:
                await runner.ask(replayed, first.session, first.said_at)

        replays = []
        for dialogue in dialogues:
            settings = runners[0].variant.settings
            replayed = await replay_dialogue(
                core, dialogue, f"{number}", settings, vectors, advance, ask_in_place
            )
            replays.append(replayed)
            for runner in runners:
                await runner.ask_at_end(replayed)
        for runner in runners:
            reports[runner.variant.name] = _report(
                runner.variant.name, replays, runner.results, runner.filler_memories
            )
    return [reports[variant.name] for variant in variants]


def count_steps(dialogues: Sequence[Dialogue], variants: Sequence[Variant]) -> int:
    """Return how many steps `measure` will report."""
    turns = sum(len(dialogue.turns) for dialogue in dialogues)
    questions = sum(len(dialogue.questions) for dialogue in dialogues)
    return turns * len({variant.store for variant in variants}) + questions * len(variants)


class _QuestionRunner:
    """Asks the questions of dialogues with one variant's settings, and collects the results."""

    def __init__(
        self, core: Core, variant: Variant, vectors: VectorCache, advance: Callable[[int], None]
    ) -> None:
        self.variant = variant
        self.results: list[_RecallResult] = []
        self.filler_memories: list[int] = []
        self._core = core
        self._vectors = vectors
        self._advance = advance

    async def ask(self, replayed: ReplayedDialogue, before: str | None, now: datetime) -> None:
        """Ask the questions that belong before a session, or at the end for None."""
        for question in replayed.dialogue.questions:
            if question.asked_before == before:
                self.results.append(await self._ask(replayed, question, now))
                self._advance(1)

    async def ask_at_end(self, replayed: ReplayedDialogue) -> None:
        """Ask the remaining questions a day after the last turn, and repeat the filler turns."""
        now = replayed.dialogue.turns[-1].said_at + timedelta(days=1)
        await self.ask(replayed, None, now)
        limit = self._core.runtime.settings.recall_limit
        for turn in replayed.filler:
            _, memories = await self._search(replayed, turn.text, now)
            self.filler_memories.append(len(memories[:limit]))

    async def _ask(
        self, replayed: ReplayedDialogue, question: Question, now: datetime
    ) -> _RecallResult:
        started, memories = await self._search(replayed, question.text, now)
        elapsed_ms = (time.perf_counter() - started) * 1000
        evidence = {replayed.memory_of.get(turn_id) for turn_id in question.evidence}
        in_prompt = memories[: self._core.runtime.settings.recall_limit]
        return _RecallResult(
            len(in_prompt),
            [memory.id in evidence for memory in memories],
            len(question.evidence),
            _tokens(in_prompt, replayed.dialogue.user_name, now),
            elapsed_ms,
        )

    async def _search(
        self, replayed: ReplayedDialogue, text: str, now: datetime
    ) -> tuple[float, list[Recalled]]:
        """Return when the search began, on the performance counter, and its results."""
        settings = msgspec.structs.replace(self.variant.settings, recall_limit=max(CUTOFFS))
        policy = policy_for(settings, self._core.runtime.settings).recall
        vector = await self._vectors.embed(text)
        started = time.perf_counter()
        memories = await self._core.search.search(
            Query(replayed.relationship_id, text, vector, policy, now)
        )
        return started, memories


def _tokens(memories: Sequence[Recalled], user_name: str, now: datetime) -> int:
    return sum(estimate_tokens(memory_line(memory, user_name, now).text()) for memory in memories)


def _report(
    name: str,
    replays: Sequence[ReplayedDialogue],
    results: Sequence[_RecallResult],
    filler_memories: Sequence[int],
) -> RecallReport:
    shares = {
        cutoff: [sum(result.ranks[:cutoff]) / result.evidence for result in results]
        for cutoff in CUTOFFS
    }
    asked_kept, others_dropped, turns = _kept_shares(replays)
    return RecallReport(
        name=name,
        recall_at_5=round(fmean(shares[5]), 4),
        recall_at_10=round(fmean(shares[10]), 4),
        recall_at_20=round(fmean(shares[20]), 4),
        recall_at_10_interval=bootstrap_interval(shares[10]),
        questions=len(results),
        stored_fraction=round(sum(len(replay.memory_of) for replay in replays) / turns, 4),
        asked_kept=round(asked_kept, 4),
        others_dropped=round(others_dropped, 4),
        memories=round(fmean(result.memories for result in results), 2),
        context_tokens=round(fmean(result.tokens for result in results), 1),
        filler_memories=round(fmean(filler_memories), 2) if filler_memories else None,
        search_ms_p50=round(median(result.search_ms for result in results), 3),
    )


def _kept_shares(replays: Sequence[ReplayedDialogue]) -> tuple[float, float, int]:
    """Return the kept share of evidence turns, the dropped share of others, and the turns."""
    asked_kept, others_dropped = [], []
    for replay in replays:
        evidence = frozenset().union(*(question.evidence for question in replay.dialogue.questions))
        for turn in replay.dialogue.turns:
            if turn.id in evidence:
                asked_kept.append(turn.id in replay.memory_of)
            else:
                others_dropped.append(turn.id not in replay.memory_of)
    return (
        fmean(asked_kept) if asked_kept else 0.0,
        fmean(others_dropped) if others_dropped else 0.0,
        len(asked_kept) + len(others_dropped),
    )


def bootstrap_interval(shares: Sequence[float]) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the mean; the seed is fixed."""
    rng = np.random.default_rng(0)
    values = np.asarray(shares)
    means = [rng.choice(values, len(values)).mean() for _ in range(_BOOTSTRAP_RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    return round(float(low), 4), round(float(high), 4)
