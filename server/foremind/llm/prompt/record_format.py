"""Formats records and memories for a language model: as quoted data, with age and origin. Pure.

A companion that says "on 2026-04-29 you stated" sounds like a database. So ages are in words, weak
matches are marked as such, and open questions come with the suggestion to return to them.
"""

from collections.abc import Sequence
from datetime import datetime

from foremind.domain.memory import Recalled
from foremind.domain.record import Record, is_manual
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.text.sentences import key_of_words, sentences_in
from foremind.text.statements.wordings import in_first_person
from foremind.text.time_ago import age_in_words

# Relevance (70/30) of the best memory below which recall is presented as a hunch.
WEAK = 0.30
WEAK_MATCH_PREFACE = (
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
    return line((before, record.content), after=after, is_manual=is_manual(record.made_by))


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


def note_line(record: Record, user_name: str) -> QuotedLine:
    """Return a note as one line."""
    if is_manual(record.made_by):
        return line((f"- {labelled(record.kind)}: ", record.content), is_manual=True)
    day = day_in_words(record.updated_at)
    states = {
        key_of_words(words): day
        for sentence in sentences_in(record.content)
        for words in in_first_person(sentence, user_name)
    }
    before = f"- {labelled(record.kind)}, {day}: "
    return line((before, record.content), day=day, states=states)


def vault_line(record: Record, now: datetime) -> QuotedLine:
    """Return a pinned record as one line."""
    saved_by = "by the game" if record.made_by == "developer" else "on request"
    title = f"{quoted(record.title)}: " if record.title else ""
    before = f"- saved {saved_by} {age_and_date(record.created_at, now)}: {title}"
    return line((before, record.content), is_manual=is_manual(record.made_by))


def memory_line(memory: Recalled, user_name: str, now: datetime) -> QuotedLine:
    """Return a memory as quoted data: who said it, how long ago, and what.

    What is no longer so is always said, whatever says elsewhere that it is so.
    """
    by_user = memory.speaker == "user"
    speaker = quoted(user_name) if by_user else "you"
    local = memory.created_at.astimezone(now.tzinfo)
    day = day_in_words(local)
    before = f"- {age_in_words(local, now)}, on {day}, {speaker} said"
    if memory.superseded:
        return line((f"{before} (no longer so): ", memory.content), sentences=False)
    return line((f"{before}: ", memory.content), day=day if by_user else None)


def memory_lines(memories: Sequence[Recalled], user_name: str, now: datetime) -> list[QuotedLine]:
    """Return memories as lines, best first."""
    return [memory_line(memory, user_name, now) for memory in memories]


def weak_match_preface(memories: Sequence[Recalled]) -> str:
    """Return the preface for memories of which even the best is a weak match, else nothing."""
    best = max((memory.relevance for memory in memories), default=WEAK)
    return WEAK_MATCH_PREFACE if best < WEAK else ""
