"""What a published library finds for the same questions: rank-bm25, over everything that was said.

It gets the words as Foremind reads them, and has its own defaults.
"""

import time
from collections.abc import Sequence
from statistics import fmean, median

import msgspec
from rank_bm25 import BM25Okapi

from foremind.text.tokenization import terms_of
from foremind_eval.dialogues import Dialogue, DialogueTurn, Question
from foremind_eval.recall import CUTOFFS, bootstrap_interval


class BaselineReport(msgspec.Struct, frozen=True, rename={
    "recall_at_5": "recall@5", "recall_at_10": "recall@10", "recall_at_20": "recall@20",
    "recall_at_10_interval": "recall@10_interval",
}):  # fmt: skip
    """Shares and the interval are as in `RecallReport`; a search takes milliseconds."""

    name: str
    recall_at_5: float
    recall_at_10: float
    recall_at_20: float
    recall_at_10_interval: tuple[float, float]
    questions: int
    search_ms_p50: float


def measure_baseline(dialogues: Sequence[Dialogue]) -> BaselineReport:
    """Ask the questions of dialogues where they say, each of the turns before it."""
    found: list[list[float]] = []  # of each question the share of its evidence, by cutoff
    elapsed_ms: list[float] = []
    for dialogue in dialogues:
        for place in dict.fromkeys(question.asked_before for question in dialogue.questions):
            known = _before(dialogue, place)
            index = BM25Okapi([terms_of(turn.text) for turn in known])
            for question in dialogue.questions:
                if question.asked_before == place:
                    started = time.perf_counter()
                    ranks = _ranks(index, known, question)
                    elapsed_ms.append((time.perf_counter() - started) * 1000)
                    shares = [sum(ranks[:cutoff]) / len(question.evidence) for cutoff in CUTOFFS]
                    found.append(shares)
    at_5, at_10, at_20 = zip(*found, strict=True)
    return BaselineReport(
        "rank-bm25",
        round(fmean(at_5), 4),
        round(fmean(at_10), 4),
        round(fmean(at_20), 4),
        bootstrap_interval(at_10),
        len(found),
        round(median(elapsed_ms), 3),
    )


def _before(dialogue: Dialogue, session: str | None) -> list[DialogueTurn]:
    """Return the turns before a session that have words, or all of them for None."""
    sessions = [turn.session for turn in dialogue.turns]
    end = len(sessions) if session is None else sessions.index(session)
    return [turn for turn in dialogue.turns[:end] if terms_of(turn.text)]


def _ranks(index: BM25Okapi, known: Sequence[DialogueTurn], question: Question) -> list[bool]:
    """Return which of the best turns are evidence, best first."""
    best = index.get_top_n(terms_of(question.text), known, n=max(CUTOFFS))
    return [turn.id in question.evidence for turn in best]
