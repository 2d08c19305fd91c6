"""Which words of a text state something of the one who says them, as of now. Pure.

Left out is what somebody else says, what is asked, supposed, wished, denied or long past: better no
fact than a wrong one.
"""

import re
from dataclasses import dataclass

_QUOTED = re.compile(r"[“«][^“”«»]{1,500}[”»]|\"[^\"]{1,500}\"")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_MOST_SENTENCE_CHARS = 300

_TELLS = (
    "said|says|saying|tells|told|tell|claim|claims|claimed|think|thinks|thought|believe|believes|"
    "believed|wrote|writes|asks|asked|swear|swears|insist|insists|pretend|pretends|jokes|joked|"
    "reckons|assume|assumes|assumed|knows|knew|shouts|shouted|goes:|sings|sang|reads:|suggests|"
    "suggested|guess|heard"
)
_OWN = re.compile(r"\bi(?:'ve)? (?:just |already |also |really )?$", re.IGNORECASE)
# From here on it is not said of oneself, not now, or not meant.
_NOT_MEANT = re.compile(
    rf"\b(?:(?P<tells>{_TELLS})(?![\w-])|"
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
# One of these words stands in whatever the pattern finds: most sentences need not be searched.
_MAY_NOT_BE_MEANT = frozenset(
    f"""{_TELLS.replace("|", " ")} goes reads know say untrue doubt as if unless suppose supposing
    imagine imagining pretending let's wish wishes dreamt dreamed in my roleplay role-play
    roleplaying role hypothetically used would might maybe perhaps when once before after
    until while back true mean sure remember where whether which why how who whom whose
    what""".split()
)
_SAID_BY = re.compile(
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
# "I live in Ghent and work at the harbour" says "I" once and means it twice.
_VERBS = (
    "live|work|love|like|adore|enjoy|hate|dislike|prefer|speak|study|have|own|can't stand|"
    "don't like|don't eat|am"
)
_SAYS_I = re.compile(rf"\W*i(?:'m| am)? (?:\w+ )?(?:{_VERBS}|\w+ing)\b", re.IGNORECASE)
_AND_ALSO = re.compile(
    rf"\b(?P<join>and|but) (?P<also>(?:also |really |just |still )?(?:{_VERBS})\b)", re.IGNORECASE
)
# A sentence without one of these says nothing of the one who says it, and wishes nothing.
_OF_ONESELF = frozenset(
    """i i'm im i've ive i'd my me we we've we're our name name's pronouns no don't never always
    stop
    keep be use please speak talk answer reply write respond make give send do could can would will
    """.split()  # noqa: SIM905
)
_WORD = re.compile(r"[\w'-]+")
#: Where a clause begins that says more of what stands before it, and was left out.
GOES_ON = "…"
_RELATIVE = frozenset("where whether which why how who whom whose what".split())  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class OwnSentence:
    """What of a sentence its speaker states, and its words in lower case."""

    text: str
    words: frozenset[str]


def own_sentences(text: str) -> list[OwnSentence]:
    """Return what a text states of its speaker, sentence by sentence; most say nothing of that."""
    plain = _QUOTED.sub(" ", text.replace("’", "'"))
    found = (_own(each.strip()[:_MOST_SENTENCE_CHARS]) for each in _SENTENCE.findall(plain))
    return [OwnSentence(each, frozenset(_words_of(each))) for each in found if each]


def _words_of(sentence: str) -> list[str]:
    return _WORD.findall(sentence.lower())


def _own(sentence: str) -> str:
    words = set(_words_of(sentence))
    if _OF_ONESELF.isdisjoint(words):
        return ""
    request = _REQUEST.match(sentence)
    if request is not None:  # "Could you use simpler words?" asks for it
        return sentence[request.end() :].rstrip("?").strip()
    if sentence.endswith("?"):
        sentence = _before_the_question(sentence)
    if not _SAYING.isdisjoint(words) and _SAID_BY.search(sentence):
        return ""
    if not _MAY_NOT_BE_MEANT.isdisjoint(words):
        sentence = _as_far_as_meant(sentence)
    return _with_subjects(sentence.strip())


def _as_far_as_meant(sentence: str) -> str:
    for meant in _NOT_MEANT.finditer(sentence):
        if meant["tells"] and _OWN.search(sentence[max(0, meant.start() - 20) : meant.start()]):
            continue  # "I think", "I told you"
        return sentence[: meant.start()] + GOES_ON * (meant[0].lower() in _RELATIVE)
    return sentence


def _before_the_question(sentence: str) -> str:
    """Keep "My name is Ana" of "My name is Ana, what's yours?"; a tag takes all of it back."""
    asked = _ASKS.search(sentence)
    if asked is None:
        return ""
    kept, rest = sentence[: asked.start()], sentence[asked.start() :]
    is_tag = len(re.findall(r"\w+", rest)) <= 3 and not re.search(r"\byours?\b", rest)
    return "" if is_tag else kept.strip()


def _with_subjects(sentence: str) -> str:
    return _AND_ALSO.sub(r"\g<join> I \g<also>", sentence) if _SAYS_I.match(sentence) else sentence
