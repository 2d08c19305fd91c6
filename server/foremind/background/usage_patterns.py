"""Usage patterns: what a user's sessions show, inferred once a week and labelled as such."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from zoneinfo import ZoneInfo

from foremind.background.curation_context import CurationContext
from foremind.domain.record import NewRecord, Record
from foremind.domain.relationship import ChangeSet, SessionUsage

_MIN_SESSIONS = 3
_TIMES = ((5, "in the morning"), (12, "in the afternoon"), (17, "in the evening"), (22, "at night"))


async def update_usage_patterns(
    context: CurationContext,
    sessions: Sequence[SessionUsage],
    change_set: ChangeSet | None = None,
) -> None:
    """Rewrite the inferred part of the profile.

    Args:
        change_set: the request to rewrite it after an erasure, if there is one.
    """
    patterns = usage_patterns_of(
        sessions, context.records_of("episodes"), context.relationship.time_zone
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
    sessions: Sequence[SessionUsage], episodes: Sequence[Record], time_zone: str
) -> dict[str, str]:
    """Return usage patterns by title; none for fewer than three sessions. Pure."""
    if len(sessions) < _MIN_SESSIONS:
        return {}
    minutes = median((session.ended - session.began).total_seconds() / 60 for session in sessions)
    zone = ZoneInfo(time_zone)
    times = Counter(_time_of_day(session.began.astimezone(zone).hour) for session in sessions)
    messages = sum(session.said for session in sessions)
    questions = sum(session.asked for session in sessions)
    patterns = {
        "session length": f"usually about {max(1, round(minutes))} minutes",
        "time of day": f"usually comes {times.most_common(1)[0][0]}",
    }
    if messages:
        percent = round(100 * questions / messages)
        patterns["follow-up habit"] = f"asks a question in {percent}% of messages"
    topics = Counter(topic for episode in episodes for topic in episode.details.topics)
    if topics:
        names = ", ".join(name for name, _ in topics.most_common(3))
        patterns["favourite topics"] = f"most often {names}"
    return patterns


def _time_of_day(hour: int) -> str:
    started = [name for start, name in _TIMES if hour >= start]
    return started[-1] if started else _TIMES[-1][1]
