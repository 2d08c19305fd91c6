"""The parts of a text in which speakers state something about themselves, as of now. Pure.

Left out is what somebody else says, and what is asked, assumed, wished, denied or long past: no
fact is better than a wrong one.
"""

import re
from dataclasses import dataclass

from foremind.text.questions import is_pure_question

_QUOTED = re.compile(r"[“«][^“”«»]{1,500}[”»]|\"[^\"]{1,500}\"")
_EMPHATIC = re.compile(r"\bdon'?t you (?:dare|ever|go) (?:to )?", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_MAX_SENTENCE_CHARS = 300

_REPORTING_VERBS = (
    "said|says|saying|tells|told|tell|claim|claims|claimed|think|thinks|thought|believe|believes|"
    "believed|wrote|writes|asks|asked|swear|swears|insist|insists|pretend|pretends|jokes|joked|"
    "reckons|assume|assumes|assumed|knows|knew|shouts|shouted|goes:|sings|sang|reads:|suggests|"
    "suggested|guess|heard"
)
_OWN = re.compile(r"\bi(?:'ve)? (?:just |already |also |really )?$", re.IGNORECASE)
# What follows one of these is not about the speaker, not about now, or not meant literally.
_NOT_MEANT = re.compile(
    rf"\b(?:(?P<reports>{_REPORTING_VERBS})(?![\w-])|"
    r"(?:(?:people|they|you|we|everyone|everybody|nobody|some) (?:know|say|think|believe|claim)|"
    r"(?:never|not|\w+n't) (?:say|said|think|thought|believe|true|mean|sure|know|remember)|"
    r"untrue|doubt|as if|as though|if|unless|suppose|supposing|imagine|imagining|pretending|"
    r"let's say|wish|wishes|dreamt|dreamed|"
    r"in (?:my|a|the|this|that) (?:dream|game|story|film|movie|book|play|novel|song)s?|"
    r"my (?:character|avatar)|role-?play\w*|hypothetically|used to|would|might|maybe|perhaps|"
    r"(?:when|once|before|after|until|while) (?:i|we|i'm)\b|as an? (?:child|kid|boy|girl|baby|"
    r"teen\w*)|"
    r"back in|where|whether|which|why|how|who|whom|whose|what)(?![\w-]))",
    re.IGNORECASE,
)
# Every match of the pattern contains one of these words; most sentences need no search.
_MAY_NOT_BE_MEANT = frozenset(
    f"""{_REPORTING_VERBS.replace("|", " ")}
    goes reads know say untrue doubt as if unless suppose supposing imagine imagining pretending
    let's wish wishes dreamt dreamed in my roleplay role-play roleplaying role hypothetically used
    would might maybe perhaps when once before after until while back true mean sure remember
    where whether which why how who whom whose what""".split()
)
# "I used to hate olives but now I love them": the past is left out, what holds now is not.
_BUT_NOW = re.compile(
    r"^used to (?:(?:really |absolutely )?(?:like|love|hate|enjoy|dislike|adore|detest|loathe) "
    r"(?P<object>.{1,80}?)|.{1,120}?),? but (?:now(?:adays)?|these days|today),? (?P<now>i\b.+)",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"\b(?:it|them|that)\b(?=\W*$)", re.IGNORECASE)
_NEVER_UNTIL = re.compile(r"\bnever\b[^,;]*\b(?:until|till|before)\b", re.IGNORECASE)
_ATTRIBUTION = re.compile(
    r"\b(?:said|says|sang|wrote) (?:the|my|his|her|our|a)\b|"
    r"\b(?:s?he|they|[A-Z]\w+) (?:said|says|wrote|sang)[ .!]*$"
)
_SAYING = frozenset(("said", "says", "sang", "wrote"))
_ASKS = re.compile(
    r"(?:^|[,;:] *|\b(?:and|but|so|or) +)"
    r"(?:do|does|did|am|is|are|was|were|can|could|should|shall|would|will|won't|don't|have|has|"
    r"had|what|whats|what's|where|when|who|who's|whose|why|how|how's|which|isn't|"
    r"aren't|doesn't|right|ok|okay|yes|no|really|you)\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(r"^\W*(?:(?:can|could|would|will) you )(?:please )?", re.IGNORECASE)
# "I live in Ghent and work at the harbour" has one "I" for two verbs.
_VERBS = (
    "live|work|love|like|adore|enjoy|hate|dislike|prefer|speak|study|have|own|can't stand|"
    "don't like|don't eat|am"
)
_SAYS_I = re.compile(rf"\W*i(?:'m| am)? (?:\w+ )?(?:{_VERBS}|\w+ing)\b", re.IGNORECASE)
_AND_ALSO = re.compile(
    rf"\b(?P<join>and|but) (?P<also>(?:also |really |just |still )?(?:{_VERBS})\b)", re.IGNORECASE
)
# A sentence without one of these states nothing about its speaker, and requests nothing.
_OF_ONESELF = frozenset(
    """i i'm im i've ive i'd my me we we've we're our name name's pronouns no don't never always
    stop
    keep be use please speak talk answer reply write respond make give send do could can would will
    """.split()  # noqa: SIM905
)
_WORD = re.compile(r"[\w'-]+")
#: Marks where a relative clause was left out.
ELLIPSIS = "…"
_RELATIVE = frozenset("where whether which why how who whom whose what".split())  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class OwnSentence:
    """The part of a sentence that its speaker states, and its words in lower case."""

    text: str
    words: frozenset[str]


def own_sentences(text: str) -> list[OwnSentence]:
    """Return what a text states about its speaker, without the sentences that state nothing."""
    plain = _EMPHATIC.sub("don't ", _QUOTED.sub(" ", text.replace("’", "'")))
    stated = (_own(sentence.strip()[:_MAX_SENTENCE_CHARS]) for sentence in _SENTENCE.findall(plain))
    return [OwnSentence(text, frozenset(_words_of(text))) for text in stated if text]


def _words_of(sentence: str) -> list[str]:
    return _WORD.findall(sentence.lower())


def _own(sentence: str) -> str:
    """Return the part of a sentence that states something about its speaker, or nothing."""
    words = set(_words_of(sentence))
    if _OF_ONESELF.isdisjoint(words):
        return ""
    request = _REQUEST.match(sentence)
    if request is not None:  # "Could you use simpler words?" asks for it
        return sentence[request.end() :].rstrip("?").strip()
    if sentence.endswith("?"):
        sentence = _before_the_question(sentence)
    elif is_pure_question(sentence):  # "isn't my dog called Scout"
        return ""
    if not _SAYING.isdisjoint(words) and _ATTRIBUTION.search(sentence):
        return ""
    if "never" in words and _NEVER_UNTIL.search(sentence):  # it is otherwise now
        return ""
    if not _MAY_NOT_BE_MEANT.isdisjoint(words):
        sentence = _as_far_as_meant(sentence)
    return _with_subjects(sentence.strip())


def _as_far_as_meant(sentence: str) -> str:
    """Cut a sentence at the first marker of what is not meant."""
    for marker in _NOT_MEANT.finditer(sentence):
        if marker["reports"] and _OWN.search(
            sentence[max(0, marker.start() - 20) : marker.start()]
        ):
            continue  # "I think", "I told you"
        now = _BUT_NOW.match(sentence[marker.start() :])
        if now is not None:
            return _as_far_as_meant(_with_object(now["now"], now["object"]))
        return sentence[: marker.start()] + ELLIPSIS * (marker[0].lower() in _RELATIVE)
    return sentence


def _with_object(sentence: str, what: str | None) -> str:
    """Return a sentence with its last "it" or "them" replaced by what that refers to."""
    return _OBJECT.sub(lambda _: what, sentence) if what else sentence


def _before_the_question(sentence: str) -> str:
    """Keep "My name is Ana" of "My name is Ana, what's yours?"; a tag question retracts it all."""
    question = _ASKS.search(sentence)
    if question is None:
        return ""
    statement, rest = sentence[: question.start()], sentence[question.start() :]
    is_tag = len(re.findall(r"\w+", rest)) <= 3 and not re.search(r"\byours?\b", rest)
    return "" if is_tag else statement.strip()


def _with_subjects(sentence: str) -> str:
    """Repeat "I" before each verb that shares it."""
    return _AND_ALSO.sub(r"\g<join> I \g<also>", sentence) if _SAYS_I.match(sentence) else sentence
