"""Usage patterns: what a user's sessions show, inferred once a week and labelled as such."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from zoneinfo import ZoneInfo

from foremind.background.curation_context import CurationContext
from foremind.domain.record import NewRecord, Record
from foremind.domain.relationship import ChangeSet, SessionUsage
from foremind.text.languages.prompt_templates import RecordWords
from foremind.text.languages.prompt_words import record_words
from foremind.text.time_ago import minutes_in_words

_MIN_SESSIONS = 3
_MORNING, _AFTERNOON, _EVENING, _NIGHT = 5, 12, 17, 22  # the hours at which they begin


async def update_usage_patterns(
    context: CurationContext,
    sessions: Sequence[SessionUsage],
    change_set: ChangeSet | None = None,
) -> None:
    """Rewrite the inferred part of the profile.

    Args:
        change_set: the request to rewrite it after an erasure, if there is one.
    """
    language = await context.language()
    patterns = usage_patterns_of(
        sessions, context.records_of("episodes"), context.relationship.time_zone, language
    )
    known = {
        entry.title: entry for entry in context.records_of("profile") if entry.kind == "inferred"
    }
    async with context.changing() as changes:
        for title, text in patterns.items() if context.policy.on("profile") else ():
            if context.dismissed("profile", title):
                continue
            record = NewRecord("profile", text, "rules", title=title, kind="inferred")
            if title not in known:
                await changes.add(record)
            elif known[title].content != text and known[title].made_by == "rules":
                await changes.change(known[title].id, record)
        await changes.connection.execute(
            "record_usage_patterns_at", context.relationship.id, context.now
        )
        if change_set is not None:
            await changes.remove_change_set(change_set)
    context.count_by_rules("habits")
    await context.reload()


def usage_patterns_of(
    sessions: Sequence[SessionUsage], episodes: Sequence[Record], time_zone: str, language: str
) -> dict[str, str]:
    """Return usage patterns by title; none for fewer than three sessions. Pure.

    The titles are labels, which prompts show in the player's language.
    """
    if len(sessions) < _MIN_SESSIONS:
        return {}
    minutes = median((session.ended - session.began).total_seconds() / 60 for session in sessions)
    zone, words = ZoneInfo(time_zone), record_words(language)
    times = Counter(
        _time_of_day(session.began.astimezone(zone).hour, words) for session in sessions
    )
    length = minutes_in_words(max(1, round(minutes)), language)
    messages = sum(session.said for session in sessions)
    questions = sum(session.asked for session in sessions)
    patterns = {
        "session length": words.lasts.format(length=length),
        "time of day": times.most_common(1)[0][0],
    }
    if messages:
        percent = round(100 * questions / messages)
        patterns["follow-up habit"] = words.asks.format(percent=percent)
    topics = Counter(topic for episode in episodes for topic in episode.details.topics)
    if topics:
        names = ", ".join(name for name, _ in topics.most_common(3))
        patterns["favourite topics"] = words.most_often.format(topics=names)
    return patterns


def _time_of_day(hour: int, words: RecordWords) -> str:
    if _MORNING <= hour < _AFTERNOON:
        return words.mornings
    if _AFTERNOON <= hour < _EVENING:
        return words.afternoons
    return words.evenings if _EVENING <= hour < _NIGHT else words.nights
