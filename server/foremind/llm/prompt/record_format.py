"""Formats records and memories for a language model: as quoted data, with age and origin. Pure.

A companion that says "on 2026-04-29 you stated" sounds like a database. So ages are in words, weak
matches are marked as such, and open questions come with the suggestion to return to them. The words
around the quotations are in the prompt's language; the days by which lines are compared stay in
English.
"""

from collections.abc import Sequence
from datetime import datetime

from foremind.domain.memory import NARRATED_TYPES, Recalled
from foremind.domain.record import Record, is_manual
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.llm.prompt.wordings import in_first_person
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import day_in, label_in, prompt_words
from foremind.text.sentences import key_of_words, sentences_in
from foremind.text.time_ago import age_in_words

# Relevance (70/30) of the best memory below which recall is presented as a hunch.
WEAK = 0.30


def labelled(label: str, language: str = ENGLISH) -> str:
    """Return a label of Foremind's own in a language, other plain words unchanged, else quoted."""
    own = label_in(language, label)
    if own != label:
        return own
    return label if label.replace(" ", "").replace("_", "").isalnum() else quoted(label)


def day_in_words(moment: datetime) -> str:
    """Return "29 April 2026"."""
    return day_in(ENGLISH, moment)


def age_and_date(then: datetime, now: datetime, language: str = ENGLISH) -> str:
    """Return "three weeks ago, on 29 April 2026"."""
    local = then.astimezone(now.tzinfo)
    dated = prompt_words(language).lines.dated
    return dated.format(age=age_in_words(local, now, language), date=day_in(language, local))


def episode_line(record: Record, now: datetime, language: str = ENGLISH) -> QuotedLine:
    """Return an episode as one line."""
    words = prompt_words(language).lines
    when = age_and_date(record.created_at, now, language)
    before = f"- {words.episode.format(when=when, topic=quoted(record.title))}: "
    conclusions = record.details.conclusions[:2]
    separators = (f" {words.settled} ", "; ")
    return line((before, record.content), *zip(separators, conclusions, strict=False))


def topic_line(record: Record, now: datetime, language: str = ENGLISH) -> QuotedLine:
    """Return a topic as one line."""
    words, sessions = prompt_words(language).lines, record.details.sessions
    when = age_and_date(record.said_at, now, language)
    template = words.topic_met if sessions > 1 else words.topic
    before = template.format(topic=quoted(record.title), when=when, count=sessions)
    return line((f"- {before}: ", record.content), is_manual=is_manual(record.made_by))


def question_line(
    record: Record, user_name: str, now: datetime, language: str = ENGLISH
) -> QuotedLine:
    """Return an open question as one line."""
    words, attempts = prompt_words(language).lines, record.details.attempts
    when = age_and_date(record.created_at, now, language)
    template = words.question_again if attempts else words.question
    before = template.format(when=when, name=quoted(user_name), count=attempts)
    return line((f"- {before}: ", record.content))


def note_line(record: Record, user_name: str, language: str = ENGLISH) -> QuotedLine:
    """Return a note as one line."""
    if is_manual(record.made_by):
        return line((f"- {labelled(record.kind, language)}: ", record.content), is_manual=True)
    day = day_in_words(record.said_at)
    states = {
        key_of_words(words): day
        for sentence in sentences_in(record.content)
        for words in in_first_person(sentence, user_name)
    }
    before = f"- {labelled(record.kind, language)}, {day_in(language, record.said_at)}: "
    return line((before, record.content), day=day, states=states)


def vault_line(record: Record, now: datetime, language: str = ENGLISH) -> QuotedLine:
    """Return a pinned record as one line."""
    words = prompt_words(language).lines
    template = words.saved_by_game if record.made_by == "developer" else words.saved
    saved_at = record.last_source_at or record.created_at
    saved = template.format(when=age_and_date(saved_at, now, language))
    title = f"{quoted(record.title)}: " if record.title else ""
    manual = is_manual(record.made_by)
    return line((f"- {saved}: {title}", record.content), is_manual=manual)


def memory_line(
    memory: Recalled, user_name: str, now: datetime, language: str = ENGLISH
) -> QuotedLine:
    """Return a memory as quoted data: who said it or that it happened, how long ago, and what.

    What is no longer so is always said, whatever says elsewhere that it is so.
    """
    words, narrated = prompt_words(language).lines, memory.memory_type in NARRATED_TYPES
    by_user = memory.speaker == "user" and not narrated
    template = words.user_said if by_user else words.companion_said
    template = words.happened if narrated else template
    when = age_and_date(memory.created_at, now, language)
    before = f"- {template.format(when=when, name=quoted(user_name))}"
    if memory.superseded:
        return line((f"{before} ({words.no_longer_so}): ", memory.content), sentences=False)
    day = day_in_words(memory.created_at.astimezone(now.tzinfo)) if by_user else None
    return line((f"{before}: ", memory.content), day=day)


def memory_lines(
    memories: Sequence[Recalled], user_name: str, now: datetime, language: str = ENGLISH
) -> list[QuotedLine]:
    """Return memories as lines, best first."""
    return [memory_line(memory, user_name, now, language) for memory in memories]


def weak_match_preface(memories: Sequence[Recalled], language: str = ENGLISH) -> str:
    """Return the preface for memories of which even the best is a weak match, else nothing."""
    best = max((memory.relevance for memory in memories), default=WEAK)
    return prompt_words(language).lines.weak_match if best < WEAK else ""
