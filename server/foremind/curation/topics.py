"""Topics: what is met again and again becomes one paragraph, rewritten with every news."""

from collections import defaultdict
from collections.abc import Sequence

from foremind.curation.asking import Paragraph, for_topic
from foremind.curation.extract import Utterance, key_of, top_sentences
from foremind.curation.work import Work
from foremind.memory.terms import terms_of, words_of
from foremind.storage.records import Details, NewRecord, Record, found_by

_SESSIONS = 3  # in which a topic must have been met, unless something was concluded on it
_AT_ONCE = 4  # topics that one round rewrites; the rest waits for the next
_MOST_EPISODES = 12  # that a paragraph is made of, the newest
_MOST_TOPICS = 100
_SENTENCES = 4
_MAX_TOKENS = 500


async def distil(work: Work) -> None:
    """Write the paragraphs of topics that have new episodes."""
    if not work.policy.on("topics"):
        return
    known = {key_of(each.title): each for each in work.of("topics")}
    due = [
        (key, episodes)
        for key, episodes in met(work.of("episodes")).items()
        if not work.dismissed("topics", key) and _has_news(known.get(key), episodes)
    ]
    due.sort(key=lambda each: (-len(each[1]), each[0]))
    for key, episodes in due[:_AT_ONCE]:
        await _write(work, key, episodes, known.get(key))
    over = len(work.of("topics")) - _MOST_TOPICS
    if over > 0:
        oldest = sorted(work.of("topics"), key=lambda each: each.updated_at)[:over]
        async with work.changing() as changes:
            await changes.remove([each.id for each in oldest])
    await work.refresh()


def met(episodes: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the episodes of each topic, by its key, that deserves a paragraph."""
    by_topic: defaultdict[str, list[Record]] = defaultdict(list)
    for each in episodes:
        for key in {key_of(topic) for topic in each.details.topics}:
            by_topic[key].append(each)
    return {
        key: told
        for key, told in by_topic.items()
        if len({each.session_id for each in told}) >= _SESSIONS
        or any(_concluded(each, key) for each in told)
    }


def _concluded(episode: Record, key: str) -> bool:
    wanted = set(key.split())
    return any(wanted <= set(terms_of(each)) for each in episode.details.conclusions)


def _has_news(topic: Record | None, episodes: Sequence[Record]) -> bool:
    if topic is None:
        return True
    by_hand = topic.made_by in ("user", "developer")
    new = max(each.id for each in episodes) > topic.details.upto
    corrected = max(each.updated_at for each in episodes) > topic.updated_at
    return not by_hand and (new or corrected)


async def _write(work: Work, key: str, episodes: Sequence[Record], before: Record | None) -> None:
    newest = episodes[-_MOST_EPISODES:]
    title = before.title if before is not None else _name_of(key, newest)
    if work.server is None:
        work.by_rules("topics")
        text = by_rules(key, newest)
    else:
        zone = work.now.tzinfo
        told = [(each.created_at.astimezone(zone), each.content) for each in newest]
        asked = for_topic(title, told, work.policy.prompts.topics)
        text = (await work.ask("topics", asked, Paragraph, _MAX_TOKENS)).text
    record = NewRecord(
        layer="topics",
        title=title,
        content=text,
        made_by=work.maker,
        refs=(" ".join(words_of(title)),),
        details=Details(
            sessions=len({each.session_id for each in episodes}),
            upto=max(each.id for each in episodes),
        ),
        vector=await work.vector(found_by(title, text)),
        sources=tuple(each.id for each in newest),
    )
    async with work.changing() as changes:
        if before is None:
            await changes.add(record)
        else:
            await changes.change(before.id, record, before.revision)


def by_rules(key: str, episodes: Sequence[Record]) -> str:
    """Return the weightiest sentences of the episodes that speak of the topic."""
    wanted = set(key.split())
    told = [Utterance(0, "", True, each.content, 0.3) for each in episodes]
    chosen = top_sentences(told, 40)
    about = [each for each in chosen if wanted & set(terms_of(each.text))]
    best = sorted(about or chosen, key=lambda each: -each.weight)[:_SENTENCES]
    return " ".join(each.text for each in chosen if each in best)[:2000] or episodes[-1].content


def _name_of(key: str, episodes: Sequence[Record]) -> str:
    names = (topic for each in reversed(episodes) for topic in each.details.topics)
    return next(topic for topic in names if key_of(topic) == key)
