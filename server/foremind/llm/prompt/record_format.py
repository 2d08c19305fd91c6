"""Formats records and memories for a language model: as quoted data, with age and origin. Pure.

A companion that says "on 2026-04-29 you stated" sounds like a database. So ages are in words, weak
matches are marked as such, and open questions come with the suggestion to return to them. The words
around the quotations are in the prompt's language; the days by which lines are compared stay in
English.

How users would say what is known of them, to find the same statement in other words.

Only plain wordings: a sentence that says more, such as why or since when, equals none of them.
"""

from collections.abc import Sequence
from datetime import datetime

from foremind.domain.memory import NARRATED_TYPES, Recalled
from foremind.domain.record import Record, is_manual
from foremind.llm.prompt.quoted_lines import QuotedLine, line, quoted
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import day_in, label_in, prompt_words
from foremind.text.sentences import key_of_words, sentences_in
from foremind.text.time_ago import age_in_words
from foremind.text.tokenization import words_of

_LIKES = ("i like {}", "i love {}", "i enjoy {}", "i adore {}")
_CALLED = ("my {} is {}", "my {}'s name is {}", "my {} is called {}", "i have a {} called {}",
           "i have a {} named {}")  # fmt: skip
# By profile slot, with the value in place of {}; family and pets with the kind and the name.
_WORDINGS: dict[str, tuple[str, ...]] = {
    "name": ("my name is {}", "my name's {}", "i am {}", "call me {}"),
    "age": ("i am {}", "i am {} years old"),
    "birthday": ("my birthday is {}", "my birthday is on {}"),
    "home": ("i live in {}", "i am living in {}"),
    "origin": ("i am from {}", "i come from {}"),
    "job": ("i am a {}", "i am an {}", "i work as a {}", "i work as an {}"),
    "employer": ("i work for {}", "i work at {}"),
    "studies": ("i study {}", "i am studying {}"),
    "status": ("i am {}",),
    "languages": ("i speak {}",),
    "diet": ("i am {}",),
    "health": ("i have {}", "i am {}"),
    "family": _CALLED,
    "pets": _CALLED,
    "goals": ("my goal is to {}", "my dream is to {}", "i want to {}", "i hope to {}",
              "i plan to {}"),
    "prefers": ("i prefer {}",),
    "likes": (*_LIKES, *(f"{wording[:-2]}to {{}}" for wording in _LIKES), "i have always liked {}",
              "i have always loved {}", "i always loved {}", "i live for {}"),
    "dislikes": ("i hate {}", "i dislike {}", "i don't like {}", "i can't stand {}",
                 "i can't bear {}", "i never liked {}", "i have never liked {}",
                 "i always hated {}", "i have always hated {}", "i no longer like {}",
                 "i am no fan of {}", "i have gone off {}", "{} is not my thing",
                 "{} are not my thing", "{} isn't my thing", "{} aren't my thing"),
}  # fmt: skip
_FAVOURITE = "favourite "
_FAVOURITES = ("my favourite {} is {}", "my favorite {} is {}")

_THE_USER = (["the", "user"], ["user"])
_VERBS = {"is": "am", "has": "have", "does": "do", "goes": "go"}
_POSSESSIVES = frozenset(("her", "his", "their"))
_SPEAKER = frozenset(("i", "i'm", "i've", "i'd", "i'll"))
_FIRST_PERSON = _SPEAKER | {"my", "we", "our", "you", "your"}


def wordings(slot: str, title: str, value: str) -> list[str]:
    """Return sentences that state no more than that a profile slot has a value, as words."""
    words = " ".join(words_of(value))
    if slot == "favourites" and title.startswith(_FAVOURITE):
        about = title.removeprefix(_FAVOURITE)
        return [wording.format(about, words) for wording in _FAVOURITES]
    templates = _WORDINGS.get(slot, ())
    if templates is not _CALLED:
        return [template.format(words) for template in templates]
    kind, _, name = words.partition(" ")
    return [template.format(kind, name) for template in templates] if name else []


def in_first_person(note: str, user_name: str) -> list[str]:
    """Return how the user may have said a note: "Lives in Porto" as "I live in Porto".

    Each as its words; empty if the note is in the user's own words. The result is for comparison:
    where the note has another subject, it is no sentence that anybody says.
    """
    words, named = _without_subject(words_of(note), words_of(user_name))
    if not words or (not named and (words[0] in _FIRST_PERSON or not _SPEAKER.isdisjoint(words))):
        return []
    if words[0] == "my":
        return [" ".join(words)]
    rest = ["my" if word in _POSSESSIVES else word for word in words[1:]]
    return [" ".join(["i", verb, *rest]) for verb in _base_forms(words[0])]


def _without_subject(words: list[str], name: Sequence[str]) -> tuple[list[str], bool]:
    """Return words without the user as their subject, and whether it was; possessives as "my"."""
    for subject in (list(name), list(name[:1]), *_THE_USER):
        if not subject:
            continue
        if words[: len(subject)] == subject:
            return words[len(subject) :], True
        if words[: len(subject)] == [*subject[:-1], f"{subject[-1]}'s"]:
            return ["my", *words[len(subject) :]], True
    return words, False


def _base_forms(verb: str) -> list[str]:
    """Return what the verb of a third person may be in the first."""
    if verb in _VERBS:
        return [_VERBS[verb]]
    if verb.endswith("ies"):
        return [f"{verb[:-3]}y"]
    if verb.endswith("es"):
        return [verb[:-1], verb[:-2]]
    return [verb[:-1]] if verb.endswith("s") else [verb]


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
