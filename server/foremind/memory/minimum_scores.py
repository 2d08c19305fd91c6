"""Statements that are always significant: a speaker's name, goals, limits and tastes. Pure.

What is quoted or played is no statement.

The minimum scores are those of published companion designs: one's name 0.85, goals and reminders
0.75, what one cannot or never does 0.65, favourites and likes 0.60.
"""

import re
from dataclasses import dataclass

from foremind.domain.companion import FloorName
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.statements.chat_text import chat_sentences
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import MAX_CHARS


@dataclass(frozen=True, slots=True)
class MinimumScore:
    """A kind of statement, in full spelling, and its minimum significance, 0 to 1."""

    name: FloorName
    score: float
    pattern: re.Pattern[str]


def _any_of(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})", re.IGNORECASE)


# "I can't wait" and "I'd love to hear it" are courtesies, not limits and goals.
_POLITE = (
    r"(?:wait|believe|imagine|say|tell|help|hear|see|know|thank|ask|agree|stress|express|even)\b"
)
_I_AM = "i am"
_ADVERBS = r"(?:(?:really|absolutely|just|always|do|also|still|especially) ){0,2}"

MINIMUM_SCORES = (
    MinimumScore(
        "identity",
        0.85,
        _any_of(r"name\b", r"call", r"i go by\b"),  # and a name is read
    ),
    MinimumScore(
        "goal",
        0.75,
        _any_of(
            r"(?:my|our) (?:\w+ )?(?:goal|dream|ambition|aim|plan|target)s? (?:is|are|was)\b",
            r"remind me\b",
            r"do not (?:let me )?forget\b",
            rf"i (?:want|hope|plan|intend|aim) to (?!{_POLITE}|be there|come|join)",
            r"(?:i|we) (?:am|are) (?:planning|saving|training|hoping|aiming|applying)\b",
        ),
    ),
    MinimumScore(
        "constraint",
        0.65,
        _any_of(
            rf"(?:i|we) (?:can[’']?t|cannot|can not|can never) (?!{_POLITE}|get (?:enough|over))",
            r"i never (?!thought|knew|expected|imagined|realized|realised|heard|forget|said)",
            rf"{_I_AM} (?:[\w-]+,? ){{0,3}}(?:allergic|intolerant)\b",
            r"i have (?:[\w-]+,? ){1,6}(?:allergy|intolerance)\b",
            rf"{_I_AM} (?:not allowed|not able|unable|vegan|vegetarian)\b",
            r"i (?:must|may) not\b",
            r"i do not (?:eat|drink|drive|smoke|fly)\b",
        ),
    ),
    MinimumScore(
        "preference",
        0.60,
        _any_of(
            r"(?:my|our) (?:\w+ )?favou?rites?\b(?! part)",
            r"is (?:my|our) (?:\w+ )?favou?rite\b",
            r"(?:don[’']?t|do not|never|stop) call(?:ing)? me "
            r"(?!back|later|again|now|tonight|tomorrow)\w",
            r"keep (?:your |the |all )?(?:answers?|repl(?:y|ies)|messages?) \w",
            rf"i {_ADVERBS}(?:like|love|adore|prefer|dislike|hate|enjoy|can not stand) "
            r"(?!(?:it|that|this|those|these|how|you|your|what|them)\b|the way|hearing|seeing|"
            r"to (?:hear|see|know))",
        ),
    ),
)

# "Places I want to go to" names no goal; "Rome is the place I want to visit" does.
_OF_SOMETHING = re.compile(
    r"(?P<equated>\b(?:is|are|was|were)(?: the| an?)? )?"
    r"\b(?:things|places?|stuff|people|(?:some|any|every)(?:thing|one|body|where)) $",
    re.IGNORECASE,
)


def minimum_scores_in(text: str, fallback: str = ENGLISH) -> list[MinimumScore]:
    """Return the minimum scores that apply to `text`; none to other languages than English."""
    if language_of(text, fallback) != ENGLISH:
        return []
    # "My names ana", "dont call me sweetie"; what is bold is not played.
    sentences = chat_sentences(text[:MAX_CHARS].replace("**", ""), whole=False)
    chat = "\n".join(sentence.text for sentence in sentences)

    def applies(minimum: MinimumScore) -> bool:
        matches = minimum.pattern.finditer(chat)
        if minimum.name == "identity":
            return any(matches) and _names_speaker(text, fallback)
        return any(_is_stated(chat, match.start()) for match in matches)

    return [minimum for minimum in MINIMUM_SCORES if applies(minimum)]


def _is_stated(chat: str, start: int) -> bool:
    """Return whether what begins at `start` is no clause about something or somebody."""
    described = _OF_SOMETHING.search(chat, 0, start)
    return described is None or described["equated"] is not None


def _names_speaker(text: str, fallback: str) -> bool:
    stated = statements_in(text, fallback)
    return any(statement.slot == "name" and statement.holds for statement in stated)
