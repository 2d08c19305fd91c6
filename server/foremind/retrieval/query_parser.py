"""Query parser: a draft's terms, times, events that times are relative to, the past. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from foremind.text.languages.language_files import ENGLISH
from foremind.text.time_expressions import Span, spans_in
from foremind.text.tokenization import query_terms_of, terms_of

_ANCHOR = re.compile(
    r"\b(?P<side>before|after|since|until) (?:the|my|our|his|her|their|your) "
    r"(?P<event>[a-z][\w'’-]*)",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:used to|before|previous(?:ly)?|former(?:ly)?|back then|in the past|originally|"
    r"at first|earlier|old|first|ever|once|no longer|anymore)\b",
    re.IGNORECASE,
)
_QUESTIONS = re.compile(r"\b(?:ask(?:ed|ing)?|questions?|wonder(?:ed|ing)?)\b", re.IGNORECASE)
_MAX_ANCHORS = 4  # of one text; each is searched for in all candidates


@dataclass(frozen=True, slots=True)
class EventAnchor:
    """An event that a time is relative to ("before the wedding"): which side, and its terms."""

    side: str
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed text. `terms` may repeat; `times` are in the player's time zone."""

    terms: tuple[str, ...]
    times: tuple[Span, ...] = ()
    anchors: tuple[EventAnchor, ...] = ()
    about_the_past: bool = False
    about_questions: bool = False


def parse_query(text: str, now: datetime, fallback: str = ENGLISH) -> ParsedQuery:
    """Parse `text` as of `now`, which is in the player's time zone.

    `fallback` is its language where that is unsure, perhaps with the player's region.
    """
    times = tuple(spans_in(text, now, fallback, undecided=True))
    terms = tuple(query_terms_of(text, fallback))
    return ParsedQuery(
        terms=terms,
        times=times,
        anchors=() if times else tuple(_anchors(text, frozenset(terms))),
        about_the_past=_PAST.search(text) is not None,
        about_questions=_QUESTIONS.search(text) is not None,
    )


def _anchors(text: str, known: frozenset[str]) -> list[EventAnchor]:
    """Return the events that times are relative to, if their terms are `known`, the text's terms.

    A word tokenized on its own may give other terms than within the text.
    """
    anchors = []
    for match in islice(_ANCHOR.finditer(text), _MAX_ANCHORS):
        terms = tuple(terms_of(match["event"]))
        if terms and known.issuperset(terms):
            anchors.append(EventAnchor(match["side"].lower(), terms))
    return anchors
