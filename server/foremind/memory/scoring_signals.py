"""The five published signals of significance, whose weights add up. Pure."""

import re
from dataclasses import dataclass

from foremind.domain.companion import SignalName
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH

_LONG_CHARS = 100
_IN_ANY_LANGUAGE: frozenset[SignalName] = frozenset({"question", "long"})


@dataclass(frozen=True, slots=True)
class Signal:
    """One reason why a turn is significant, and its weight."""

    name: SignalName
    weight: float
    pattern: re.Pattern[str]


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


SIGNALS = (
    Signal(
        "phrase",
        0.30,
        _words(
            r"promis(?:e[ds]?|ing)", r"trust(?:ed|s|ing)?", r"remember(?:ed|s|ing)?",
            r"important(?:ly)?", r"secrets?", r"(?:never|don[’']?t|won[’']?t) forget",
        ),
    ),
    Signal(
        "emotion",
        0.20,
        _words(
            r"lov(?:e[ds]?|ing)", r"hat(?:e[ds]?|ing)", r"happ(?:y|ier|iest|iness)", r"thrilled",
            r"grateful", r"sad(?:ness|der)?", r"hurts?", r"cr(?:y|ied|ying)", r"afraid", r"scared",
            r"fears?", r"worr(?:y|ied|ying)", r"anxious", r"nervous", r"ang(?:ry|er)", r"mad",
            r"upset", r"frustrat(?:ed|ing)", r"lonely", r"alone", r"miss(?:ed|es|ing)?",
            r"feels?", r"felt", r"help(?:ed|s|ing)?", r"heartbroken", r"depressed",
            r"stress(?:ed|ful)?", r"jealous", r"ashamed", r"embarrassed", r"proud",
        ),
    ),
    Signal(
        "commitment",
        0.15,
        _words(
            r"will", r"shall", r"decided", r"going to", r"gonna", r"(?:i|we)[’']ll",
            r"plan(?:ned|ning)? to", r"intend to", r"agreed to",
        ),
    ),
    Signal("question", 0.10, re.compile(r"[?？]")),
    Signal("long", 0.10, re.compile(rf"(?s).{{{_LONG_CHARS + 1}}}")),
)  # fmt: skip


def signals_in(text: str, fallback: str = ENGLISH) -> list[Signal]:
    """Return the signals found in `text`.

    The signals and weights are those of the published design: phrases such as promise, trust,
    remember, important 0.30; emotional content 0.20 (helping counts); commitments such as will,
    shall, decided, going to 0.15; questions 0.10; more than 100 characters 0.10. In other languages
    than English only the last two are looked for.
    """
    english = language_of(text, fallback) == ENGLISH
    return [
        signal
        for signal in SIGNALS
        if (english or signal.name in _IN_ANY_LANGUAGE) and signal.pattern.search(text)
    ]
