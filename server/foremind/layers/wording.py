"""How records are put into words for a language model: as quoted data, with age and origin. Pure.

A companion that says "on 2026-04-29 you stated" sounds like a database. Ages are in words, what
matched weakly is said to be so, and what was left open comes with the wish to return to it.
"""

import json
from collections.abc import Sequence
from datetime import datetime

from foremind.memory.age import age_in_words
from foremind.memory.ranking import Recalled
from foremind.storage.records import Record

# Relevance (70/30) of the best memory below which recall is a hunch rather than knowledge.
WEAK = 0.30
HUNCH = (
    "(These match only faintly: if you use one, let it sound like something that rings a bell, "
    "not like a fact.)"
)


# What could close a tag, begin a line, or turn the direction of what follows.
_ESCAPED = {
    ord(each): f"\\u{ord(each):04x}"
    for each in "<\x7f\x85\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
}


def quoted(text: str) -> str:
    """Return `text` on one line between quotation marks that it cannot close, nor any tag."""
    return json.dumps(text, ensure_ascii=False).translate(_ESCAPED)


def labelled(label: str) -> str:
    """Return a label of one or more words as it is, and anything else quoted."""
    return label if label.replace(" ", "").replace("_", "").isalnum() else quoted(label)


def day_in_words(moment: datetime) -> str:
    """Return "29 April 2026"."""
    return f"{moment.day} {moment:%B %Y}"


def aged(then: datetime, now: datetime) -> str:
    """Return "three weeks ago, on 29 April 2026"."""
    local = then.astimezone(now.tzinfo)
    return f"{age_in_words(local, now)}, on {day_in_words(local)}"


def episode_line(record: Record, now: datetime) -> str:
    """Return an episode as one line."""
    concluded = "; ".join(quoted(each) for each in record.details.conclusions[:2])
    end = f" You settled: {concluded}." if concluded else ""
    return (
        f"- {aged(record.created_at, now)}, about {quoted(record.title)}: "
        f"{quoted(record.content)}{end}"
    )


def topic_line(record: Record, now: datetime, others: int = 0) -> str:
    """Return a topic as one line; `others` who spoke of it too are only counted."""
    met = f"met in {record.details.sessions} conversations, " if record.details.sessions else ""
    too = f" ({others} others spoke with you about it too.)" if others else ""
    age = age_in_words(record.updated_at.astimezone(now.tzinfo), now)
    return f"- {quoted(record.title)} ({met}last {age}): {quoted(record.content)}{too}"


def question_line(record: Record, user_name: str, now: datetime) -> str:
    """Return an open question as one line."""
    again = f", and it came up {record.details.attempts} times since" * bool(
        record.details.attempts
    )
    age = age_in_words(record.created_at.astimezone(now.tzinfo), now)
    return (
        f"- You spoke of this {age} and left it open{again}; {quoted(user_name)} may want to come "
        f"back to it: {quoted(record.content)}"
    )


def vault_line(record: Record, now: datetime) -> str:
    """Return what was saved on purpose as one line."""
    who = "by the game" if record.made_by == "developer" else "on request"
    title = f"{quoted(record.title)}: " if record.title else ""
    return f"- saved {who} {aged(record.created_at, now)}: {title}{quoted(record.content)}"


def memory_line(memory: Recalled, user_name: str, now: datetime) -> str:
    """Return a memory as quoted data: who said it, how long ago, and what."""
    who = quoted(user_name) if memory.speaker == "user" else "you"
    changed = " (no longer so)" if memory.superseded else ""
    when = aged(memory.created_at, now)
    return f"- {when}, {who} said{changed}: {quoted(memory.content)}"


def memory_lines(memories: Sequence[Recalled], user_name: str, now: datetime) -> list[str]:
    """Return memories as lines, best first; where even the best is weak, the first says so."""
    lines = [memory_line(each, user_name, now) for each in memories]
    if lines and max(each.relevance for each in memories) < WEAK:
        lines[0] = f"{HUNCH}\n{lines[0]}"
    return lines
