"""The texts of a language's file that prompts and records are made of, and the places in them.

What background work writes (`RecordWords`, labels) may be missing, and is in English then.
"""

from collections.abc import Mapping
from string import Formatter

import msgspec

from foremind.domain.companion import KINDS, PROFILE_SLOTS


class LineWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the lines of a prompt say besides what they quote: templates, with `PLACES` to fill.

    `when` in them is filled by `dated`; `topic` and `name` are quoted.
    """

    date: str
    just_now: str
    yesterday: str
    dated: str
    user_said: str
    companion_said: str
    happened: str
    no_longer_so: str
    weak_match: str
    episode: str
    settled: str
    topic: str
    topic_met: str
    question: str
    question_again: str
    saved: str
    saved_by_game: str
    seems: str
    said_on: str
    recap: str
    task: str
    document: str


class RecordWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What records that rules write say besides what was said; empty where a file lacks it.

    `on_day` begins what was said on a `{date}`; `a_chat` is what an episode without a topic is
    about. The others are usage patterns.
    """

    on_day: str = ""
    a_chat: str = ""
    nothing_much: str = ""
    short_answers: str = ""
    long_answers: str = ""


#: What records are labelled with besides the slots of profiles and the kinds of notes.
RECORD_LABELS = frozenset({"left open", "settled", "answers"})
#: All labels of Foremind's own, which are their English words.
LABELS = RECORD_LABELS | PROFILE_SLOTS.keys() | KINDS.keys()

#: The places of templates, sorted; other words have none.
PLACES: Mapping[str, list[str]] = {
    "player": ["name"],
    "today": ["day", "month", "weekday", "year"],
    "lines.date": ["day", "month", "year"],
    "lines.dated": ["age", "date"],
    "lines.user_said": ["name", "when"],
    "lines.companion_said": ["when"],
    "lines.happened": ["when"],
    "lines.episode": ["topic", "when"],
    "lines.topic": ["topic", "when"],
    "lines.topic_met": ["count", "topic", "when"],
    "lines.question": ["name", "when"],
    "lines.question_again": ["count", "name", "when"],
    "lines.saved": ["when"],
    "lines.saved_by_game": ["when"],
    "lines.said_on": ["date"],
    "lines.recap": ["date"],
    "lines.document": ["title"],
    "records.on_day": ["date"],
}


def unfilled(field: str, text: str) -> str | None:
    """Return what a text of the table `prompt` is expected to have; None if it has it."""
    places = PLACES.get(field, [])
    if _places_in(text) == places:
        return None
    expected = ", ".join(f"{{{place}}}" for place in places) or "nothing in braces"
    return f"{expected}{', each once' if places else ''}"


def _places_in(text: str) -> list[str] | None:
    """Return the names of the places that `str.format` fills, sorted; None for a single brace."""
    try:
        return sorted(place for _, place, _, _ in Formatter().parse(text) if place is not None)
    except ValueError:
        return None
