"""The questions that episodes leave open, and that later ones repeat or settle."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from foremind.background.extractive_summary import Utterance, is_about
from foremind.background.step_context import StepContext
from foremind.domain.record import Details, NewRecord, Record, is_manual
from foremind.retrieval.relationship_layers import MIN_EPISODE_COSINE
from foremind.storage.record_store import RecordChanges
from foremind.text.tokenization import terms_key, terms_of, words_of
from foremind_models import calibrated_passage_cosine

_MAX_QUESTIONS = 50  # of a relationship, written by a model or rules


@dataclass(frozen=True, slots=True)
class EpisodeSources:
    """The turns that episodes are made of, and the records that a model was shown with them."""

    turns: tuple[int, ...]
    records: tuple[int, ...] = ()


async def restore_open_questions(context: StepContext, sessions: Collection[UUID]) -> None:
    """Restore questions that remaining episodes left open, removed because of another source.

    For example because of an erased session that asked one again, or settled it.
    """
    min_similarity = calibrated_passage_cosine(context.embedder.manifest, MIN_EPISODE_COSINE)
    missing: dict[str, NewRecord] = {}
    for episode in context.records_of("episodes"):
        for text in episode.details.open_questions if episode.session_id in sessions else ():
            question = await question_record(
                context, text, episode.refs, EpisodeSources((), (episode.id,))
            )
            if _most_similar(question, context.records_of("questions"), min_similarity) is None:
                restored = replace(
                    question, made_by=episode.made_by, occurred_at=episode.created_at
                )
                missing.setdefault(terms_key(text), restored)
    wanted = [question for question in missing.values() if not _is_dismissed(context, question)]
    if wanted and context.policy.on("questions"):

        async def write(changes: RecordChanges) -> None:
            for question in wanted:
                await changes.add(question)

        context.plan(write)
        await context.write_now()


def _is_dismissed(context: StepContext, question: NewRecord) -> bool:
    return context.dismissed("questions", question.content)


async def question_record(
    context: StepContext, text: str, references: Sequence[str], sources: EpisodeSources
) -> NewRecord:
    """Return an open question as a record, with those of an episode's references it mentions."""
    words = f" {' '.join(words_of(text))} "
    refs = (" ".join(words_of(reference)) for reference in references)
    return NewRecord(
        layer="questions",
        content=text,
        made_by=context.made_by,
        refs=tuple(ref for ref in refs if f" {ref} " in words),
        details=Details(status="open"),
        vector=await context.embed(text),
        turns=sources.turns,
        sources=sources.records,
    )


async def settle(changes: RecordChanges, question: Record, sources: EpisodeSources) -> None:
    """Settle a question; its status reveals something of these turns and is erased with them."""
    details = Details(status="settled", attempts=question.details.attempts)
    await changes.update_details(question.id, details)
    await changes.add_sources(question.id, sources.turns, ())


async def reopen(changes: RecordChanges, question: Record, sources: EpisodeSources) -> None:
    """Open a deferred question again; that is erased with these turns, as `settle` is."""
    details = Details(status="open", attempts=question.details.attempts + 1)
    await changes.update_details(question.id, details)
    await changes.add_sources(question.id, sources.turns, ())


def touched_again(questions: Sequence[Record], utterances: Sequence[Utterance]) -> list[Record]:
    """Return the deferred questions that the user has spoken of since they were deferred."""
    return [
        question
        for question in questions
        if question.details.status == "deferred"
        and any(
            utterance.by_user
            and utterance.said_at is not None
            and utterance.said_at > question.updated_at
            and is_about(utterance.text, question.content)
            for utterance in utterances
        )
    ]


async def store_questions(
    context: StepContext,
    changes: RecordChanges,
    known: Sequence[Record],
    questions: Sequence[NewRecord],
) -> None:
    """Add new questions; count repeated ones and add their sources."""
    min_similarity = calibrated_passage_cosine(context.embedder.manifest, MIN_EPISODE_COSINE)
    for question in questions:
        repeated = _most_similar(question, known, min_similarity)
        if repeated is None and not _is_dismissed(context, question):
            await changes.add(question)
        elif repeated is not None:
            details = Details(status="open", attempts=repeated.details.attempts + 1)
            await changes.update_details(repeated.id, details)
            await changes.add_sources(repeated.id, question.turns, ())
    if evicted := questions_to_evict(context.records_of("questions"), len(questions)):
        await changes.remove(evicted)


def questions_to_evict(questions: Sequence[Record], added: int) -> list[int]:
    """Return the ids of questions beyond the limit: settled ones first, then the oldest."""
    generated = [question for question in questions if not is_manual(question.made_by)]
    excess = len(generated) + added - _MAX_QUESTIONS
    generated.sort(key=lambda question: question.details.status != "settled")
    return [question.id for question in generated[: max(0, excess)]]


def ask_the_same(question: str, other: str) -> bool:
    """Return whether questions that are close in meaning are about the same.

    They are not if each has a word of its own: "meet Anna in Porto", "meet Bela in Porto". Vectors
    hardly tell such apart, and one question listed twice costs less than one that is lost.
    """
    terms, other_terms = set(terms_of(question)), set(terms_of(other))
    return terms <= other_terms or other_terms <= terms


def _most_similar(
    question: NewRecord, known: Sequence[Record], min_similarity: float
) -> Record | None:
    scored = [
        (float(np.dot(candidate.vector, question.vector)), candidate)
        for candidate in known
        if candidate.vector is not None and question.vector is not None
        if ask_the_same(question.content, candidate.content)
    ]
    best = max(scored, key=lambda pair: pair[0], default=None)
    return best[1] if best is not None and best[0] >= min_similarity else None
