"""Episodes, what they leave open, and where a session was left."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from foremind.background.curation_context import CurationContext
from foremind.background.extractive_summary import (
    Utterance,
    chars_of,
    conclusions_of,
    ended,
    key_of,
    left_open,
    questions_of,
    references_of,
    settles,
    top_sentences,
    topics_of,
)
from foremind.background.prompts import EpisodeAnswer, EpisodesAnswer, for_episodes
from foremind.domain.errors import UnusableAnswer
from foremind.domain.record import (
    Details,
    NewRecord,
    Record,
    by_hand,
    found_by,
    of_layer,
    open_questions,
)
from foremind.domain.relationship import ChangeSet, TranscriptTurn
from foremind.domain.settings import LayerName
from foremind.retrieval.layer_recall import EPISODE_COSINE
from foremind.retrieval.similarity_calibration import calibrated
from foremind.runtime.offload import aside
from foremind.storage.record_changes import RecordChanges
from foremind.text.tokenization import terms_of, words_of

TOLD_AT_ONCE = 40  # turns that become one episode by rules, or are shown to the model together
_MAX_TOKENS = 1200
_MADE: tuple[LayerName, ...] = ("episodes", "topics", "questions", "opening")
_MOST_NAMED = 40  # topics so far that a model is shown
_MOST_QUESTIONS = 50  # of a relationship that a model or rules made


@dataclass(frozen=True, slots=True)
class EpisodeSources:
    """What something is told from: turns, and the questions that a model was shown beside them."""

    turns: tuple[int, ...]
    records: tuple[int, ...] = ()


async def tell(
    work: CurationContext, turns: Sequence[TranscriptTurn], *, closed: bool, again: bool = False
) -> None:
    """Make episodes of turns of one session.

    Args:
        closed: its time is over.
        again: it was told before; what was removed of that stays away.
    """
    for first in range(0, len(turns), TOLD_AT_ONCE):
        part = list(turns[first : first + TOLD_AT_ONCE])
        last = first + TOLD_AT_ONCE >= len(turns)
        await _tell(work, part, closed=closed and last, again=again)


async def tell_again(
    work: CurationContext, portion: ChangeSet, turns: Sequence[TranscriptTurn]
) -> None:
    """Make episodes again of turns that went with what else they were made of."""
    await _leave_open_again(work, {turn.session_id for turn in turns if turn.told})
    by_session: dict[UUID, list[TranscriptTurn]] = {}
    for turn in turns:
        if not turn.told:
            by_session.setdefault(turn.session_id, []).append(turn)
    for part in by_session.values():
        await tell(work, part, closed=False, again=True)
    async with work.changing() as changes:
        await changes.noted_again(portion)


async def _leave_open_again(work: CurationContext, sessions: Collection[UUID]) -> None:
    """Bring questions back that episodes of some sessions left open, where they went with others.

    With a session that asked one again, say, or settled it.
    """
    least = calibrated(work.embedder.manifest, EPISODE_COSINE)
    left: dict[str, NewRecord] = {}
    for each in work.of("episodes"):
        for text in each.details.open_questions if each.session_id in sessions else ():
            question = await _question(work, text, each.refs, EpisodeSources((), (each.id,)))
            if _nearest(question, work.of("questions"), least) is None:
                made = replace(question, made_by=each.made_by, told_at=each.created_at)
                left.setdefault(key_of(text), made)
    wanted = [each for each in left.values() if not _removed(work, each)]
    if wanted and work.policy.on("questions"):
        async with work.changing() as changes:
            for question in wanted:
                await changes.add(question)
        await work.refresh()


def _removed(work: CurationContext, question: NewRecord) -> bool:
    return work.dismissed("questions", question.content)


async def open_again(
    work: CurationContext, portion: ChangeSet, turns: Sequence[TranscriptTurn]
) -> None:
    """Say again where the last session was left, of which `turns` are what there is to tell."""
    last = list(turns[-((len(turns) - 1) % TOLD_AT_ONCE + 1) :]) if turns else []
    told = None
    if last and work.policy.on("opening") and not work.of("opening"):
        known = open_questions(work.records)
        told, sources = await _told_of(work, last, known)
    async with work.changing() as changes:
        if told is not None:
            await changes.add(_opening(work, told, last, sources))
        await changes.noted_again(portion)
    await work.refresh()


async def _told_of(
    work: CurationContext, turns: Sequence[TranscriptTurn], known: Sequence[Record]
) -> tuple[EpisodesAnswer, EpisodeSources]:
    """Return what is told of turns, and of what: a model is shown the open questions as well."""
    work.stood_in = False
    said = work.utterances(turns)
    sources = EpisodeSources(tuple(turn.id for turn in turns))
    names = (work.bond.user_name, work.bond.companion_name)
    if work.server is None:
        work.by_rules("episodes")
        return await aside(chars_of(said), lambda: by_rules(said, names, known)), sources
    named = _named(work.records)
    opened = [each.content for each in known]
    prompt = work.policy.prompts.episodes
    asked = for_episodes(opened, said, prompt, [each.title for each in named])
    try:
        told = await work.ask("episodes", asked, EpisodesAnswer, _MAX_TOKENS)
        if not told.episodes:
            work.stood_in = True
    except UnusableAnswer as error:
        work.stand_in("episodes", error)
        told = EpisodesAnswer()
    if not (told.episodes and told.left_at):  # a small model leaves out what it is asked for
        ruled = await aside(chars_of(said), lambda: by_rules(said, names, known))
        told = EpisodesAnswer(
            told.episodes or ruled.episodes,
            told.left_at or ruled.left_at,
            told.settled or ruled.settled,
        )
    shown = [*known, *_taken_up(named, told, said)]
    return told, replace(sources, records=tuple(each.id for each in shown))


def _opening(
    work: CurationContext,
    told: EpisodesAnswer,
    turns: Sequence[TranscriptTurn],
    sources: EpisodeSources,
) -> NewRecord:
    return NewRecord(
        layer="opening",
        content=told.left_at.replace("\n", " "),
        made_by=work.maker,
        session_id=turns[-1].session_id,
        turns=sources.turns,
        sources=sources.records,
        told_at=turns[-1].created_at,
    )


async def _tell(
    work: CurationContext, turns: Sequence[TranscriptTurn], *, closed: bool, again: bool
) -> None:
    if not any(map(work.policy.on, _MADE)):
        async with work.changing() as changes:
            await changes.advance("told", turns[-1].id, work.bond.told_turn_id)
        return
    known = open_questions(work.records)
    told, sources = await _told_of(work, turns, known)
    session_id = turns[-1].session_id
    at = turns[-1].created_at
    records = [
        replace(await _episode(work, episode, session_id, sources), told_at=at)
        for episode in told.episodes
    ]
    questions = [
        replace(await _question(work, text, episode.references, sources), told_at=at)
        for episode in told.episodes
        for text in episode.open_questions
    ]
    settled = {number for number in told.settled if 1 <= number <= len(known)}
    async with work.changing() as changes:
        if work.policy.on("episodes") or work.policy.on("topics"):
            for record in records:
                if not (again and _was_removed(work, record)):
                    await changes.add(record)
        if work.policy.on("questions"):
            for number in settled:
                await _settle(changes, known[number - 1], sources)
            await _keep_questions(work, changes, known, questions)
        if closed and told.left_at and work.policy.on("opening"):
            await changes.remove([each.id for each in work.of("opening")])
            await changes.add(_opening(work, told, turns, sources))
        await changes.advance("told", turns[-1].id, work.bond.told_turn_id)
    await work.refresh()


def _named(records: Sequence[Record]) -> list[Record]:
    """Return records that name a topic, one for each: paragraphs first, then the newest."""
    topics = [each for each in of_layer(records, "topics") if each.title]
    topics.sort(key=lambda each: each.updated_at, reverse=True)
    told = of_layer(reversed(records), "episodes")
    named: dict[str, Record] = {}
    for each in (*topics, *(one for one in told if len(one.details.topics) == 1)):
        named.setdefault(key_of(each.title), each)
    return list(named.values())[:_MOST_NAMED]


def _taken_up(
    named: Sequence[Record], told: EpisodesAnswer, said: Sequence[Utterance]
) -> Iterator[Record]:
    """Return those whose names were given to an episode and were not said in it."""
    words = {term for each in said for term in terms_of(each.text)}
    given = {key_of(name) for episode in told.episodes for name in episode.topic.split(",")}
    for each in named:
        key = key_of(each.title)
        if key in given and not set(key.split()) <= words:
            yield each


def by_rules(
    said: Sequence[Utterance], names: tuple[str, str], known: Sequence[Record]
) -> EpisodesAnswer:
    """Tell of talk without a language model: one episode of its weightiest sentences."""
    topics = topics_of(said, 3)
    best = top_sentences(said, 4)
    summary = " ".join(f"{each.utterance.name}: {ended(each.text)}" for each in best)
    unsettled = [each.text for each in left_open(said, 3)]
    episode = EpisodeAnswer(
        topic=", ".join(topics) or "a chat",
        summary=(summary or " ".join(ended(each.text) for each in said[:2]))[:2000]
        or "nothing much",
        references=list(references_of((each.text for each in said), names)),
        questions=list(questions_of(said, 3)),
        conclusions=list(conclusions_of(said, 2)),
        open_questions=unsettled,
    )
    spoke = f"You spoke of {', '.join(topics)}. " if topics else ""
    last = " ".join(f"{each.utterance.name}: {ended(each.text)}" for each in best[-2:])
    opened = f" Left open: {unsettled[-1]}" if unsettled else ""
    settled = [
        number
        for number, each in enumerate(known, 1)
        if any(settles(one.text, each.content) for one in said if one.by_user)
    ]
    return EpisodesAnswer(
        [episode], f"{spoke}{last}{opened}".strip()[:2000] or "Nothing much.", settled
    )


def _was_removed(work: CurationContext, episode: NewRecord) -> bool:
    keys = removal_keys(episode.session_id, episode.title, alone=True)
    return any(work.dismissed("episodes", key) for key in keys)


def removal_keys(session_id: UUID | None, title: str, *, alone: bool) -> list[str]:
    """Return by what a removed episode is known, so that it is not told again.

    Args:
        alone: it is the last one of its session.
    """
    return [f"{session_id} {key_of(title)}", *([f"{session_id}"] if alone else [])]


async def _episode(
    work: CurationContext, told: EpisodeAnswer, session_id: UUID, sources: EpisodeSources
) -> NewRecord:
    return NewRecord(
        layer="episodes",
        title=told.topic,
        content=told.summary,
        made_by=work.maker,
        refs=tuple(" ".join(words_of(reference)) for reference in told.references),
        details=Details(
            questions=tuple(told.questions),
            conclusions=tuple(told.conclusions),
            open_questions=tuple(told.open_questions),
            topics=tuple(each.strip() for each in told.topic.split(",") if each.strip()),
        ),
        vector=await work.vector(found_by(told.topic, told.summary)),
        session_id=session_id,
        turns=sources.turns,
        sources=sources.records,
    )


async def _question(
    work: CurationContext, text: str, references: Sequence[str], sources: EpisodeSources
) -> NewRecord:
    spoken = f" {' '.join(words_of(text))} "
    refs = (" ".join(words_of(reference)) for reference in references)
    return NewRecord(
        layer="questions",
        content=text,
        made_by=work.maker,
        refs=tuple(ref for ref in refs if f" {ref} " in spoken),
        details=Details(status="open"),
        vector=await work.vector(text),
        turns=sources.turns,
        sources=sources.records,
    )


async def _settle(changes: RecordChanges, question: Record, sources: EpisodeSources) -> None:
    """Settle a question: that it is says something of these turns, and goes with them."""
    details = Details(status="settled", attempts=question.details.attempts)
    await changes.touch(question.id, details)
    await changes.add_sources(question.id, sources.turns, ())


async def _keep_questions(
    work: CurationContext,
    changes: RecordChanges,
    known: Sequence[Record],
    questions: Sequence[NewRecord],
) -> None:
    """Count what was asked again, from now on made of that as well; add what is new."""
    least = calibrated(work.embedder.manifest, EPISODE_COSINE)
    for question in questions:
        again = _nearest(question, known, least)
        if again is None and not _removed(work, question):
            await changes.add(question)
        elif again is not None:
            details = Details(status="open", attempts=again.details.attempts + 1)
            await changes.touch(again.id, details)
            await changes.add_sources(again.id, question.turns, ())
    if gone := without_room(work.of("questions"), len(questions)):
        await changes.remove(gone)


def without_room(questions: Sequence[Record], added: int) -> list[int]:
    """Return the questions that make room for others: those settled first, then the oldest."""
    made = [question for question in questions if not by_hand(question.made_by)]
    over = len(made) + added - _MOST_QUESTIONS
    made.sort(key=lambda each: each.details.status != "settled")
    return [each.id for each in made[: max(0, over)]]


def _nearest(question: NewRecord, known: Sequence[Record], least: float) -> Record | None:
    near = [
        (float(np.dot(each.vector, question.vector)), each)
        for each in known
        if each.vector is not None and question.vector is not None
    ]
    best = max(near, key=lambda each: each[0], default=None)
    return best[1] if best is not None and best[0] >= least else None
