"""Evidence recall: of the turns that answer a question, how many does the search bring back?"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import fmean, median

import msgspec

from foremind.app import Core
from foremind.companions import CompanionFile, CompanionSettings, policy_for
from foremind.embedding.queue import Priority
from foremind.evaluation.dialogues import Dialogue
from foremind.memory.search import Query

CUTOFFS = (5, 10, 20)


class RecallReport(msgspec.Struct, frozen=True, rename={
    "recall_at_5": "recall@5", "recall_at_10": "recall@10", "recall_at_20": "recall@20",
}):  # fmt: skip
    """Shares are 0 to 1; `search_ms_p50` is milliseconds without embedding."""

    recall_at_5: float
    recall_at_10: float
    recall_at_20: float
    questions: int
    stored_fraction: float
    search_ms_p50: float


@dataclass(frozen=True, slots=True)
class Filters:
    """Which of the recall filters are on."""

    significance: bool
    age_window: bool

    def settings(self, limit: int) -> CompanionSettings:
        """Return companion settings that keep or lift each filter."""
        return CompanionSettings(
            significance_threshold=None if self.significance else 0.0,
            recall_any_age=not self.age_window,
            recall_limit=limit,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    ranks: list[bool]
    evidence: int
    search_ms: float


async def measure_recall(
    core: Core, dialogues: Sequence[Dialogue], filters: Filters, advance: Callable[[int], None]
) -> RecallReport:
    """Store every dialogue through the real store and ask its questions through the real search.

    Questions are asked a day after the last turn. `advance` is told of finished steps.
    """
    asked: list[_Asked] = []
    stored = said = 0
    for dialogue in dialogues:
        relationship_id, settings, memory_of = await _tell(core, dialogue, filters, advance)
        said += len(dialogue.turns)
        stored += len(memory_of)
        policy = policy_for(settings, core.settings).recall
        now = dialogue.turns[-1].said_at + timedelta(days=1)
        for question in dialogue.questions:
            vector = await core.embedder.embed_query(question.text, Priority.ENTER)
            started = time.perf_counter()
            found = await core.search.search(
                Query(relationship_id, question.text, vector, policy, now)
            )
            elapsed = (time.perf_counter() - started) * 1000
            wanted = {memory_of.get(each) for each in question.evidence}
            asked.append(
                _Asked([each.id in wanted for each in found], len(question.evidence), elapsed)
            )
            advance(1)
    return _report(asked, stored / said if said else 0.0)


async def _tell(
    core: Core, dialogue: Dialogue, filters: Filters, advance: Callable[[int], None]
) -> tuple[int, CompanionSettings, dict[str, int]]:
    """Store a dialogue; return its relationship, settings, and the memory of each kept turn."""
    settings = filters.settings(max(CUTOFFS))
    companion = await core.companions.put(
        CompanionFile(
            slug=f"eval-{dialogue.id}",
            name=dialogue.companion_name,
            persona="Evaluated.",
            settings=settings,
        )
    )
    memory_of: dict[str, int] = {}
    told_in: str | None = None
    for turn in dialogue.turns:
        if turn.session != told_in:
            told_in = turn.session
            session = await core.turns.open_session(
                f"eval-{dialogue.id}", dialogue.user_name, companion.id, turn.said_at
            )
        if turn.speaker == "user":
            stored = await core.turns.commit_message(session, turn.id, turn.text, turn.said_at)
            turn_id: int | None = stored.id
        else:
            turn_id = await core.turns.commit_reply(
                session, None, "completed", turn.text, turn.said_at
            )
        verdict = await core.rememberer.remember(turn_id) if turn_id is not None else None
        if verdict is not None and verdict.memory_id is not None:
            memory_of[turn.id] = verdict.memory_id
        advance(1)
    return session.relationship_id, settings, memory_of


def _report(asked: Sequence[_Asked], stored_fraction: float) -> RecallReport:
    def at(cutoff: int) -> float:
        return round(fmean(sum(each.ranks[:cutoff]) / each.evidence for each in asked), 4)

    return RecallReport(
        recall_at_5=at(5),
        recall_at_10=at(10),
        recall_at_20=at(20),
        questions=len(asked),
        stored_fraction=round(stored_fraction, 4),
        search_ms_p50=round(median(each.search_ms for each in asked), 3),
    )
