"""Topics: what comes up repeatedly gets one paragraph, rewritten whenever something is new."""

from foremind.background.prompts import TopicAnswer, topic_prompt
from foremind.background.step_context import StepContext
from foremind.background.step_definitions import Outcome
from foremind.background.topic_candidates import (
    TopicCandidate,
    paragraph_by_rules,
    source_lines,
    topic_candidates_in,
)
from foremind.domain.record import Details, NewRecord, is_manual, search_text
from foremind.runtime.supervision import run_or_offload
from foremind.storage.record_store import RecordChanges
from foremind.text.tokenization import words_of

_MAX_UPDATES = 4  # topics that one run rewrites; the others wait for the next
_MAX_TOPICS = 100  # written by a model or rules
_MAX_ALIASES = 20  # names under which a topic is found
_MAX_TOKENS = 500


async def update_topics(context: StepContext) -> Outcome:
    """Rewrite the paragraphs of topics that are stale, some at a time."""
    if not context.policy.on("topics"):
        return Outcome(produced=True)
    await context.load()
    size = sum(len(record.content) for record in context.records)
    no_model = context.server is None
    candidates = await run_or_offload(
        size, lambda: topic_candidates_in(context.records, mentions=no_model)
    )
    stale = [
        candidate
        for candidate in candidates
        if candidate.qualifies
        and candidate.is_stale
        and not context.dismissed("topics", candidate.key)
    ]
    incomplete = [await _write_paragraph(context, candidate) for candidate in stale[:_MAX_UPDATES]]
    await context.write_now()
    generated = [topic for topic in context.records_of("topics") if not is_manual(topic.made_by)]
    excess = len(generated) - _MAX_TOPICS
    if excess > 0:
        oldest = sorted(generated, key=lambda topic: topic.updated_at)[:excess]

        async def evict(changes: RecordChanges) -> None:
            await changes.remove([topic.id for topic in oldest])

        context.plan(evict)
        return Outcome(produced=True)  # the next run would write the evicted topics again
    return Outcome(produced=True, more=any(incomplete) or len(stale) > _MAX_UPDATES)


async def _write_paragraph(context: StepContext, candidate: TopicCandidate) -> bool:
    """Rewrite a paragraph from its previous text and one batch; return whether more remains."""
    previous = candidate.topic
    title = candidate.names[0]
    text, last_episode = await _paragraph(context, candidate)
    record = NewRecord(
        layer="topics",
        title=title,
        content=text,
        made_by=context.made_by,
        refs=tuple(" ".join(words_of(name)) for name in candidate.names[:_MAX_ALIASES]),
        details=Details(sessions=candidate.occurrences, upto=last_episode),
        vector=await context.embed(search_text(title, text)),
        sources=tuple(source.id for source in (*candidate.episodes, *candidate.notes)),
    )

    async def write(changes: RecordChanges) -> None:
        if previous is None:
            await changes.add(record)
        else:
            await changes.change(previous.id, record, previous.revision)
        await changes.remove([topic.id for topic in candidate.merged])

    context.plan(write)
    return any(episode.id > last_episode for episode in candidate.episodes)


async def _paragraph(context: StepContext, candidate: TopicCandidate) -> tuple[str, int]:
    """Return the text of a paragraph and the id of the last episode that it covers."""
    statuses = {
        question.content: question.details.status for question in context.records_of("questions")
    }
    previous = "" if candidate.topic is None else candidate.topic.content
    batch, last_episode = candidate.next_batch()
    lines = source_lines(batch, candidate.notes, statuses, context.now.tzinfo)
    own = context.policy.prompts.topics
    answer = await context.ask(
        "topics",
        lambda: topic_prompt(candidate.names[0], lines, own, previous),
        [previous, *candidate.names, *(text for _, text in lines)],
        TopicAnswer,
        _MAX_TOKENS,
    )
    if answer is not None:
        text = answer.gate.paragraph(answer.value.text, previous)
        if text:
            return text, last_episode
        context.refuse("topics")
    last_episode = max((episode.id for episode in candidate.episodes), default=0)
    language = await context.language()
    paragraph = paragraph_by_rules(candidate, statuses, context.now.tzinfo, language)
    return paragraph, last_episode
