"""How much a turn matters, 0 to 1, by the five published signals. Pure."""

import re
from dataclasses import dataclass

_LONG = 100  # characters


@dataclass(frozen=True, slots=True)
class Signal:
    """One reason why a turn matters, and what it adds."""

    name: str
    weight: float
    pattern: re.Pattern[str]


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


_SIGNALS = (
    Signal(
        "phrase",
        0.30,
        _words(
            r"promis(?:e[ds]?|ing)", r"trust(?:ed|s|ing)?", r"remember(?:ed|s|ing)?",
            r"important(?:ly)?", r"secrets?", r"(?:never|don[’']?t|won[’']?t) forget",
            r"means? (?:a lot|so much|everything|the world)", r"matters? to me",
        ),
    ),
    Signal(
        "emotion",
        0.20,
        _words(
            r"lov(?:e[ds]?|ing)", r"hat(?:e[ds]?|ing)", r"lik(?:e[ds]|ing)", r"enjoy(?:ed|s|ing)?",
            r"happ(?:y|ier|iest|iness)", r"glad", r"joy(?:ful)?", r"excit(?:ed|ing)", r"thrilled",
            r"proud", r"grateful", r"thank(?:s|ful)?", r"sad(?:ness|der)?", r"sorry", r"hurts?",
            r"cr(?:y|ied|ying)", r"afraid", r"scared", r"fears?", r"worr(?:y|ied|ies|ying)",
            r"anxious", r"nervous", r"ang(?:ry|er)", r"mad", r"upset", r"frustrat(?:ed|ing)",
            r"lonely", r"alone", r"miss(?:ed|es|ing)?", r"hop(?:e[ds]?|ing)", r"wish(?:ed|es)?",
            r"feel(?:s|ing|ings)?", r"felt", r"help(?:ed|s|ing)?", r"car(?:e[ds]?|ing)",
            r"amazing", r"wonderful", r"awful", r"terrible", r"heartbroken", r"depressed",
            r"stress(?:ed|ful)?", r"surprised", r"jealous", r"ashamed", r"embarrassed",
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
    Signal("question", 0.10, re.compile(r"\?")),
    Signal("long", 0.10, re.compile(rf"(?s).{{{_LONG + 1}}}")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Significance:
    """A score from 0 to 1 and the names of the signals that made it."""

    score: float
    signals: tuple[str, ...]


def judge(text: str) -> Significance:
    """Add up the signals found in `text`, capped at 1.

    The signals and weights are those of the published design: phrases such as promise, trust,
    remember, important 0.30; emotional content 0.20 (helping counts); commitments such as will,
    shall, decided, going to 0.15; questions 0.10; more than 100 characters 0.10.
    """
    found = [signal for signal in _SIGNALS if signal.pattern.search(text)]
    score = min(1.0, sum(signal.weight for signal in found))
    return Significance(round(score, 2), tuple(signal.name for signal in found))
