"""Formats records and memories for a language model: as quoted data, with age and origin. Pure.

A companion that says "on 2026-04-29 you stated" sounds like a database. So ages are in words, weak
matches are marked as such, and open questions come with the suggestion to return to them.
"""

from collections.abc import Sequence
from datetime import datetime

from foremind.domain.memory import Recalled
from foremind.domain.record import Record, by_hand
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.text.relative_time import age_in_words

# Relevance (70/30) of the best memory below which recall is presented as a hunch.
WEAK = 0.30
HUNCH = (
    "(These match only faintly: if you use one, let it sound like something that rings a bell, "
    "not like a fact.)"
)


def labelled(label: str) -> str:
    """Return a label of plain words unchanged, and anything else quoted."""
    return label if label.replace(" ", "").replace("_", "").isalnum() else quoted(label)


def day_in_words(moment: datetime) -> str:
    """Return "29 April 2026"."""
    return f"{moment.day} {moment:%B %Y}"


def age_and_date(then: datetime, now: datetime) -> str:
    """Return "three weeks ago, on 29 April 2026"."""
    local = then.astimezone(now.tzinfo)
    return f"{age_in_words(local, now)}, on {day_in_words(local)}"


def episode_line(record: Record, now: datetime) -> QuotedLine:
    """Return an episode as one line."""
    before = f"- {age_and_date(record.created_at, now)}, about {quoted(record.title)}: "
    conclusions = record.details.conclusions[:2]
    separators = (" You settled: ", "; ")
    return line((before, record.content), *zip(separators, conclusions, strict=False))


def topic_line(record: Record, now: datetime, others: int = 0) -> QuotedLine:
    """Return a topic as one line; `others` is the number of other users who mentioned it."""
    met = f"met in {record.details.sessions} conversations, " if record.details.sessions else ""
    after = f" ({others} others spoke with you about it too.)" if others else ""
    before = f"- {quoted(record.title)} ({met}last {age_and_date(record.updated_at, now)}): "
    return line((before, record.content), after=after, by_hand=by_hand(record.made_by))


def question_line(record: Record, user_name: str, now: datetime) -> QuotedLine:
    """Return an open question as one line."""
    again = f", and it came up {record.details.attempts} times since" * bool(
        record.details.attempts
    )
    before = (
        f"- You spoke of this {age_and_date(record.created_at, now)}, and left it open{again}; "
        f"{quoted(user_name)} may want to come back to it: "
    )
    return line((before, record.content))


def note_line(record: Record) -> QuotedLine:
    """Return a note as one line."""
    manual = by_hand(record.made_by)
    day = "" if manual else f", {day_in_words(record.updated_at)}"
    return line((f"- {labelled(record.kind)}{day}: ", record.content), by_hand=manual)


def vault_line(record: Record, now: datetime) -> QuotedLine:
    """Return a pinned record as one line."""
    saved_by = "by the game" if record.made_by == "developer" else "on request"
    title = f"{quoted(record.title)}: " if record.title else ""
    before = f"- saved {saved_by} {age_and_date(record.created_at, now)}: {title}"
    return line((before, record.content), by_hand=by_hand(record.made_by))


def memory_line(memory: Recalled, user_name: str, now: datetime) -> QuotedLine:
    """Return a memory as quoted data: who said it, how long ago, and what."""
    speaker = quoted(user_name) if memory.speaker == "user" else "you"
    changed = " (no longer so)" if memory.superseded else ""
    when = age_and_date(memory.created_at, now)
    return line((f"- {when}, {speaker} said{changed}: ", memory.content))


def memory_lines(memories: Sequence[Recalled], user_name: str, now: datetime) -> list[QuotedLine]:
    """Return memories as lines, best first."""
    return [memory_line(memory, user_name, now) for memory in memories]


def hunch(memories: Sequence[Recalled]) -> str:
    """Return the preface for memories of which even the best is a weak match, else nothing."""
    return HUNCH if max((memory.relevance for memory in memories), default=WEAK) < WEAK else ""
