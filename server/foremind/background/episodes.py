"""Episodes of a conversation, the questions that they leave open, and the recap of a session."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import msgspec
import numpy as np

from foremind.background.due_work import turns_outside_window
from foremind.background.extractive_summary import (
    Utterance,
    chars_of,
    conclusions_of,
    is_about,
    left_open,
    questions_of,
    references_of,
    settles,
    top_sentences,
    topics_of,
    with_full_stop,
)
from foremind.background.prompts import EpisodeAnswer, EpisodesAnswer, episodes_prompt
from foremind.background.step_context import StepContext
from foremind.background.step_definitions import Outcome
from foremind.domain.record import (
    Details,
    NewRecord,
    Record,
    is_manual,
    of_layer,
    search_text,
    unsettled_questions,
)
from foremind.domain.relationship import TranscriptTurn
from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.background_answer_gate import AnswerGate, without_repetitions
from foremind.llm.prompt.assembly import MAX_TURNS as MAX_PROMPT_TURNS
from foremind.memory.manual_edits import episode_keys
from foremind.retrieval.relationship_layers import MIN_EPISODE_COSINE
from foremind.runtime.supervision import run_or_offload
from foremind.storage.background_store import MAX_TURNS
from foremind.storage.record_store import RecordChanges
from foremind.text.languages.prompt_words import heading_in, record_words
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


_MAX_EPISODE_TURNS = 40  # that become one episode by rules, or are shown to the model together
# Turns of an open session for an episode by rules, which has one topic. A model divides as many as
# it may be shown: other requests follow each time.
_EPISODE_BY_RULES = 8
_MAX_TOKENS = 1200
_LAYERS: tuple[LayerName, ...] = ("episodes", "topics", "questions", "opening")
_MAX_TOPIC_NAMES = 40  # known topics that a model is shown
_MAX_TOPICS = 3  # that an episode has by rules


async def update_episodes(context: StepContext) -> Outcome:
    """Write episodes of sessions that are over, and of turns that left an open one's window."""
    relationship = context.relationship
    if relationship.change_sets_for("episodes") or relationship.change_sets_for("opening"):
        return await _rewrite(context)
    if not await _may_have_left_window(context):
        return Outcome()
    turns = await context.background.turns_after(relationship.id, relationship.narrated_turn_id)
    pending = [turn for turn in turns if not turn.narrated]
    active = context.active_sessions
    ended = [turn for turn in pending if turn.session_id not in active]
    running = [turn for turn in pending if turn.session_id in active]
    full = len(turns) == MAX_TURNS
    if ended:
        batch = [turn for turn in ended if turn.session_id == ended[0].session_id]
        # The last session that was read may continue in the next page.
        complete = not full or batch[-1].session_id != turns[-1].session_id
        return await _write_first(context, batch, closed=complete, more=full or batch != ended)
    summarised = context.summarised_turn_id if context.policy.on("summary") else 0
    # A prompt holds at most this many turns: earlier ones are outside its window.
    outside = (running[:-MAX_PROMPT_TURNS] if full else []) or turns_outside_window(
        running,
        summarised,
        context.policy,
        context.count_tokens,
        _EPISODE_BY_RULES if context.server is None else _MAX_EPISODE_TURNS,
    )
    if outside:
        return await _write_first(context, outside, closed=False, more=full)
    passed = pending[0].id - 1 if pending else turns[-1].id if turns else 0
    if full and passed > relationship.narrated_turn_id:  # a whole page already has episodes
        context.plan(partial(_advance, context, passed))
        return Outcome(more=True)
    return Outcome()


async def _may_have_left_window(context: StepContext) -> bool:
    """Return whether turns may have left the prompt's window, or a session has ended.

    After activity that is known without reading the turns of the whole session: of those that
    are not in the summary there are few.
    """
    relationship, policy = context.relationship, context.policy
    summarised = context.summarised_turn_id
    scheduled = "episodes" in relationship.steps_due
    over = len(context.active_sessions) < len(relationship.open_sessions)
    if scheduled or over or not policy.on("summary") or summarised > relationship.narrated_turn_id:
        return True
    turns = await context.said_after(summarised, MAX_TURNS)
    tokens = sum(context.count_tokens(turn.content) for turn in turns)
    return len(turns) > MAX_PROMPT_TURNS or tokens > policy.working_tokens


async def _write_first(
    context: StepContext, turns: Sequence[TranscriptTurn], *, closed: bool, more: bool
) -> Outcome:
    """Write episodes of the first turns of a session; `closed`: after all of them it is over."""
    batch = turns[:_MAX_EPISODE_TURNS]
    incomplete = len(batch) < len(turns)
    await context.load()
    await _write_batch(context, batch, closed=closed and not incomplete)
    return Outcome(produced=True, more=more or incomplete)


async def _rewrite(context: StepContext) -> Outcome:
    """Rewrite episodes of which something was erased, then the recap of the last session."""
    relationship, background = context.relationship, context.background
    await context.load()
    for change_set in relationship.change_sets_for("episodes"):
        turns = await background.turns(relationship.id, change_set.turns)
        await restore_open_questions(context, {turn.session_id for turn in turns if turn.narrated})
        by_session: dict[UUID, list[TranscriptTurn]] = {}
        for turn in turns:
            if not turn.narrated:
                by_session.setdefault(turn.session_id, []).append(turn)
        for of_session in by_session.values():
            for start in range(0, len(of_session), _MAX_EPISODE_TURNS):
                batch = of_session[start : start + _MAX_EPISODE_TURNS]
                await _write_batch(context, batch, closed=False, again=True)
                await context.write_now()
        context.plan(partial(RecordChanges.remove_change_set, change_set=change_set))
    for change_set in relationship.change_sets_for("opening"):
        await _rewrite_recap(context, await background.last_closed_session(relationship.id))
        context.plan(partial(RecordChanges.remove_change_set, change_set=change_set))
    return Outcome(produced=True, more=True)


async def _rewrite_recap(context: StepContext, turns: Sequence[TranscriptTurn]) -> None:
    """Rewrite the recap of the last session from its remaining turns."""
    last = list(turns[-((len(turns) - 1) % _MAX_EPISODE_TURNS + 1) :]) if turns else []
    if last and context.policy.on("opening") and not context.records_of("opening"):
        known = unsettled_questions(context.records)
        answer, sources = await _extract_episodes(context, last, known)
        if answer.left_at:
            recap = _recap_record(context, answer, last, sources)
            context.plan(partial(_add, recap))


async def _add(record: NewRecord, changes: RecordChanges) -> None:
    await changes.add(record)


async def _advance(context: StepContext, turn_id: int, changes: RecordChanges) -> None:
    changes.advance("narrated", turn_id, context.relationship.narrated_turn_id)


async def _extract_episodes(
    context: StepContext, turns: Sequence[TranscriptTurn], known: Sequence[Record]
) -> tuple[EpisodesAnswer, EpisodeSources]:
    """Return the episodes of turns and their sources.

    Args:
        known: the unsettled questions, which a model is shown as well.
    """
    utterances = context.utterances(turns)
    sources = EpisodeSources(tuple(turn.id for turn in turns))
    size = chars_of(utterances)
    names = (context.relationship.user_name, context.relationship.companion_name)
    language = await context.language()
    topics = _records_naming_topics(context.records)
    answered = await context.ask(
        "episodes",
        lambda: episodes_prompt(
            [question.content for question in known],
            utterances,
            context.policy.prompts.episodes,
            [topic.title for topic in topics],
        ),
        [utterance.text for utterance in utterances],
        EpisodesAnswer,
        _MAX_TOKENS,
    )
    answer = EpisodesAnswer()
    if answered is not None:
        answer = await run_or_offload(
            size,
            lambda: grounded_episodes(
                answered.value, answered.gate, topics, known, _topic_of(utterances, language)
            ),
        )
        if not answer.episodes:
            context.refuse("episodes")
    if not (answer.episodes and answer.left_at):  # small models leave out requested fields
        by_rules = await run_or_offload(
            size, lambda: episodes_by_rules(utterances, names, known, language)
        )
        answer = EpisodesAnswer(
            answer.episodes or by_rules.episodes,
            answer.left_at or by_rules.left_at,
            answer.settled or by_rules.settled,
        )
    if context.server is None:
        return answer, sources
    shown = [*known, *_reused_topics(topics, answer, utterances)]
    return answer, replace(sources, records=tuple(record.id for record in shown))


def grounded_episodes(
    answer: EpisodesAnswer,
    gate: AnswerGate,
    topics: Sequence[Record],
    known: Sequence[Record],
    topic: str,
) -> EpisodesAnswer:
    """Return what the conversation gives reason for of an answer.

    Args:
        gate: of what was said.
        topics: known topics, whose names may be used again.
        known: the unsettled questions; one is settled by what touches on it.
        topic: of an episode that the model has named by something else.
    """
    names = {terms_key(record.title) for record in topics}

    def admitted(texts: Sequence[str]) -> list[str]:
        return [text for text in without_repetitions(texts) if gate.admits(text)]

    episodes = [
        replaced
        for episode in answer.episodes
        if (
            replaced := msgspec.structs.replace(
                episode,
                topic=episode.topic
                if terms_key(episode.topic) in names or gate.touches(episode.topic)
                else topic,
                summary=gate.paragraph(episode.summary),
                references=[name for name in episode.references if gate.admits_value(name)],
                questions=admitted(episode.questions),
                conclusions=admitted(episode.conclusions),
                open_questions=admitted(episode.open_questions),
            )
        ).summary
    ]
    settled = [
        number
        for number in answer.settled
        if 1 <= number <= len(known) and gate.touches(known[number - 1].content)
    ]
    return EpisodesAnswer(episodes, gate.paragraph(answer.left_at), settled)


def _recap_record(
    context: StepContext,
    answer: EpisodesAnswer,
    turns: Sequence[TranscriptTurn],
    sources: EpisodeSources,
) -> NewRecord:
    return NewRecord(
        layer="opening",
        content=answer.left_at.replace("\n", " "),
        made_by=context.made_by,
        session_id=turns[-1].session_id,
        turns=sources.turns,
        sources=sources.records,
        occurred_at=turns[-1].created_at,
    )


async def _write_batch(
    context: StepContext,
    turns: Sequence[TranscriptTurn],
    *,
    closed: bool,
    again: bool = False,
) -> None:
    """Write episodes of turns of one session.

    Args:
        closed: the session is over.
        again: episodes of these turns existed before; those the user removed stay removed.
    """
    if not any(map(context.policy.on, _LAYERS)):
        context.plan(partial(_advance, context, turns[-1].id))
        return
    known = unsettled_questions(context.records)
    answer, sources = await _extract_episodes(context, turns, known)
    session_id = turns[-1].session_id
    at = turns[-1].created_at
    records = [
        replace(await _episode_record(context, episode, session_id, sources), occurred_at=at)
        for episode in answer.episodes
    ]
    questions = [
        replace(await question_record(context, text, episode.references, sources), occurred_at=at)
        for episode in answer.episodes
        for text in episode.open_questions
    ]

    async def write(changes: RecordChanges) -> None:
        if context.policy.on("episodes") or context.policy.on("topics"):
            for record in records:
                if not (again and _episode_was_dismissed(context, record)):
                    await changes.add(record)
        if context.policy.on("questions"):
            for number in set(answer.settled):
                await settle(changes, known[number - 1], sources)
            for question in touched_again(known, context.utterances(turns)):
                await reopen(changes, question, sources)
            await store_questions(context, changes, known, questions)
        if closed and context.policy.on("opening"):
            await changes.remove([recap.id for recap in context.records_of("opening")])
            if answer.left_at:
                await changes.add(_recap_record(context, answer, turns, sources))
        await _advance(context, turns[-1].id, changes)

    context.plan(write)


def _records_naming_topics(records: Sequence[Record]) -> list[Record]:
    """Return one record per known topic name: paragraphs first, then the newest episodes."""
    topics = [topic for topic in of_layer(records, "topics") if topic.title]
    topics.sort(key=lambda topic: topic.updated_at, reverse=True)
    episodes = of_layer(reversed(records), "episodes")
    by_key: dict[str, Record] = {}
    for record in (*topics, *(episode for episode in episodes if len(episode.details.topics) == 1)):
        by_key.setdefault(terms_key(record.title), record)
    return list(by_key.values())[:_MAX_TOPIC_NAMES]


def _reused_topics(
    topics: Sequence[Record], answer: EpisodesAnswer, utterances: Sequence[Utterance]
) -> Iterator[Record]:
    """Yield the records whose topic names an episode was given without their being said in it."""
    words = {term for utterance in utterances for term in terms_of(utterance.text)}
    given = {terms_key(name) for episode in answer.episodes for name in episode.topic.split(",")}
    for record in topics:
        key = terms_key(record.title)
        if key in given and not set(key.split()) <= words:
            yield record


def episodes_by_rules(
    utterances: Sequence[Utterance],
    names: tuple[str, str],
    known: Sequence[Record],
    language: str,
) -> EpisodesAnswer:
    """Return one episode made of the highest-scoring sentences, without a language model.

    Args:
        names: of the user and the companion.
        known: open questions, some of which these utterances may settle.
        language: of the words around what was said.
    """
    words = record_words(language)
    best = top_sentences(utterances, 4)
    summary = " ".join(
        f"{sentence.utterance.name}: {with_full_stop(sentence.text)}" for sentence in best
    )
    unsettled = [sentence.text for sentence in left_open(utterances, 3)]
    episode = EpisodeAnswer(
        topic=_topic_of(utterances, language),
        summary=(
            summary or " ".join(with_full_stop(utterance.text) for utterance in utterances[:2])
        )[:2000]
        or words.nothing_much,
        references=list(references_of((utterance.text for utterance in utterances), names)),
        questions=list(questions_of(utterances, 3)),
        conclusions=list(conclusions_of(utterances, 2)),
        open_questions=unsettled,
    )
    last = " ".join(
        f"{sentence.utterance.name}: {with_full_stop(sentence.text)}" for sentence in best[-2:]
    )
    still_open = f" {heading_in(language, 'left open')}: {unsettled[-1]}" if unsettled else ""
    settled = [
        number
        for number, question in enumerate(known, 1)
        if any(
            settles(utterance.text, question.content)
            for utterance in utterances
            if utterance.by_user
        )
    ]
    left_at = f"{last}{still_open}".strip()[:2000]
    return EpisodesAnswer([episode], left_at, settled)


def _topic_of(utterances: Sequence[Utterance], language: str) -> str:
    """Return the topic of an episode by rules."""
    return ", ".join(topics_of(utterances, _MAX_TOPICS)) or record_words(language).a_chat


def _episode_was_dismissed(context: StepContext, episode: NewRecord) -> bool:
    keys = episode_keys(episode.session_id, episode.title, only_one=True)
    return any(context.dismissed("episodes", key) for key in keys)


async def _episode_record(
    context: StepContext, episode: EpisodeAnswer, session_id: UUID, sources: EpisodeSources
) -> NewRecord:
    return NewRecord(
        layer="episodes",
        title=episode.topic,
        content=episode.summary,
        made_by=context.made_by,
        refs=tuple(" ".join(words_of(reference)) for reference in episode.references),
        details=Details(
            questions=tuple(episode.questions),
            conclusions=tuple(episode.conclusions),
            open_questions=tuple(episode.open_questions),
            topics=tuple(name.strip() for name in episode.topic.split(",") if name.strip()),
        ),
        vector=await context.embed(search_text(episode.topic, episode.summary)),
        session_id=session_id,
        turns=sources.turns,
        sources=sources.records,
    )
