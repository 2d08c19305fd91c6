"""Topics: what is met again and again becomes one paragraph, rewritten with every news."""

from foremind.background.curation_context import CurationContext
from foremind.background.prompts import TopicAnswer, for_topic
from foremind.background.topic_candidates import TopicCandidate, by_rules, lines_of, subjects_of
from foremind.domain.errors import UnusableAnswer
from foremind.domain.record import Details, NewRecord, by_hand, found_by
from foremind.runtime.offload import aside
from foremind.text.tokenization import words_of

_AT_ONCE = 4  # topics that one round rewrites; the rest waits for the next
_MOST_TOPICS = 100  # that a model or rules made
_MOST_NAMES = 20  # that a topic is found by
_MAX_TOKENS = 500


async def distil(work: CurationContext) -> bool:
    """Write the paragraphs of topics of which there is news; tell whether some are left."""
    if not work.policy.on("topics"):
        return False
    size = sum(len(record.content) for record in work.records)
    no_model = work.server is None
    found = await aside(size, lambda: subjects_of(work.records, mentions=no_model))
    due = [
        each
        for each in found
        if each.deserves_a_paragraph and each.has_news and not work.dismissed("topics", each.key)
    ]
    more = [await _write(work, each) for each in due[:_AT_ONCE]]
    await work.refresh()
    made = [each for each in work.of("topics") if not by_hand(each.made_by)]
    over = len(made) - _MOST_TOPICS
    if over > 0:
        oldest = sorted(made, key=lambda each: each.updated_at)[:over]
        async with work.changing() as changes:
            await changes.remove([each.id for each in oldest])
        await work.refresh()
        return False  # what had to make room would come again
    return any(more) or len(due) > _AT_ONCE


async def _write(work: CurationContext, subject: TopicCandidate) -> bool:
    """Write a paragraph anew, of the former one and what is new; tell whether more is new."""
    before = subject.topic
    title = subject.names[0]
    text, upto = await _paragraph(work, subject)
    record = NewRecord(
        layer="topics",
        title=title,
        content=text,
        made_by=work.maker,
        refs=tuple(" ".join(words_of(name)) for name in subject.names[:_MOST_NAMES]),
        details=Details(sessions=subject.meetings, upto=upto),
        vector=await work.vector(found_by(title, text)),
        sources=tuple(each.id for each in (*subject.episodes, *subject.beside)),
    )
    async with work.changing() as changes:
        if before is None:
            await changes.add(record)
        else:
            await changes.change(before.id, record, before.revision)
        await changes.remove([each.id for each in subject.joined])
    return any(episode.id > upto for episode in subject.episodes)


async def _paragraph(work: CurationContext, subject: TopicCandidate) -> tuple[str, int]:
    """Return the text of a paragraph, and the last episode that it tells of."""
    questions = {each.content: each.details.status for each in work.of("questions")}
    work.stood_in = False
    if work.server is None:
        work.by_rules("topics")
    else:
        former = "" if subject.topic is None else subject.topic.content
        portion, upto = subject.portion()
        told = lines_of(portion, subject.beside, questions, work.now.tzinfo)
        asked = for_topic(subject.names[0], told, work.policy.prompts.topics, former)
        try:
            return (await work.ask("topics", asked, TopicAnswer, _MAX_TOKENS)).text, upto
        except UnusableAnswer as error:
            work.stand_in("topics", error)
    last = max((episode.id for episode in subject.episodes), default=0)
    return by_rules(subject, questions, work.now.tzinfo), last
