"""Once a week: what a user's sessions show of habits. Inferred, and said to be."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from zoneinfo import ZoneInfo

from foremind.background.curation_context import CurationContext
from foremind.domain.record import NewRecord, Record
from foremind.domain.relationship import ChangeSet, SessionUsage

_LEAST_SESSIONS = 3
_TIMES = ((5, "in the morning"), (12, "in the afternoon"), (17, "in the evening"), (22, "at night"))


async def infer_habits(
    work: CurationContext, sessions: Sequence[SessionUsage], again: ChangeSet | None = None
) -> None:
    """Write the inferred part of the profile anew, or `again` where something went."""
    found = habits_of(sessions, work.of("episodes"), work.bond.time_zone)
    known = {each.title: each for each in work.of("profile") if each.kind == "inferred"}
    async with work.changing() as changes:
        for title, text in found.items() if work.policy.on("profile") else ():
            if work.dismissed("profile", title):
                continue
            record = NewRecord("profile", text, "rules", title=title, kind="inferred")
            if title not in known:
                await changes.add(record)
            elif known[title].content != text and known[title].made_by == "rules":
                await changes.change(known[title].id, record)
        await changes.connection.execute("advance_habits", work.bond.id, work.now)
        if again is not None:
            await changes.noted_again(again)
    work.by_rules("habits")
    await work.refresh()


def habits_of(
    sessions: Sequence[SessionUsage], episodes: Sequence[Record], time_zone: str
) -> dict[str, str]:
    """Return what sessions show, by name; nothing before there are three. Pure."""
    if len(sessions) < _LEAST_SESSIONS:
        return {}
    minutes = median((session.ended - session.began).total_seconds() / 60 for session in sessions)
    zone = ZoneInfo(time_zone)
    hours = Counter(_time_of_day(session.began.astimezone(zone).hour) for session in sessions)
    said = sum(session.said for session in sessions)
    asked = sum(session.asked for session in sessions)
    found = {
        "session length": f"usually about {max(1, round(minutes))} minutes",
        "time of day": f"usually comes {hours.most_common(1)[0][0]}",
    }
    if said:
        share = round(100 * asked / said)
        found["follow-up habit"] = f"asks a question in {share}% of messages"
    topics = Counter(topic for episode in episodes for topic in episode.details.topics)
    if topics:
        names = ", ".join(name for name, _ in topics.most_common(3))
        found["favourite topics"] = f"most often {names}"
    return found


def _time_of_day(hour: int) -> str:
    named = [name for start, name in _TIMES if hour >= start]
    return named[-1] if named else _TIMES[-1][1]
