"""How significant a turn is, 0 to 1, and why. Pure.

The score is the largest of four: the sum of the published signals, the minimum scores of statements
that are always significant, what a short answer is worth for the question it answers, and what a
small classifier has learned from utterances that people ask about later. The signals alone keep
hardly more of those than chance would. The classifier's place is taken, in other languages than
English and with a model that has none, by what the words tell: whether something is stated, and
whether about the speaker.

Statements that are always significant: a speaker's name, goals, limits and tastes.

What is quoted or played is no statement.

The minimum scores are those of published companion designs: one's name 0.85, goals and reminders
0.75, what one cannot or never does 0.65, favourites and likes 0.60.
"""

import math
import re
from dataclasses import dataclass

from foremind.domain.companion_rules import FloorName, SignalName, SignificanceRules
from foremind.domain.memory import Reason
from foremind.runtime.caches import erasable_cache
from foremind.text.languages import utterances
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.statements.chat_text import chat_sentences
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import MAX_CHARS, terms_of, unspaced_chars, words_of

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


# At log odds 0 the classifier contributes the default threshold, 0.30, and it never contributes
# more than twice that: only what can be named in words scores higher.
_LEARNED_AT_BOUNDARY = 0.30
_LEARNED_SLOPE = 2.0

# What a statement scores where there is no classifier for its language: enough to be kept, and more
# if it is about the speaker.
_OWN_STATEMENT, _STATEMENT = 0.45, 0.35

# What happened in the speaker's life, in few words: "I got the job!"; not "I got the point".
_NEWS = re.compile(
    r"\b(?:i|we)(?:[’']?ve| have)? (?:(?:just|finally|actually|already|really) )*(?:"
    r"(?:passed|failed|lost|quit|won|bought|sold|adopted|finished|started|broke) "
    r"(?:my|our|the|an?)|"
    r"got (?:(?:my|our|the|an?) (?!point|idea|impression|feeling|message|joke|hint|gist)|into|"
    r"hired|fired|engaged|married|divorced|promoted|accepted)|graduated|"
    r"(?:was|were) (?:hired|fired|accepted|promoted|diagnosed)|moved (?:to|in|out)|broke up)\b",
    re.IGNORECASE,
)
_NEWS_SCORE = 0.35  # as of a statement
_MAX_NEWS_CHARS = 40  # the classifier judges longer ones well

_EMPTY_TERMS = frozenset(
    terms_of(
        "mhm hmm hm mm um uh huh ok okay oh ah aha ahh see know right yeah yes yep nope sure fine "
        "haha hehe lol well thanks thank"
    )
)
# The words of a text that only repeats a few, and how many those are. A long plan repeats many.
_MIN_REPEATED, _MAX_FEW = 8, 12

_MAX_CACHED_CHARS = 500  # of a text whose score is kept: a sentence or a note

_REQUESTED = 0.75  # as reminders have in `minimum_scores`


@dataclass(frozen=True, slots=True)
class SignificanceScore:
    """A score from 0 to 1, and every reason that counted towards it, largest first."""

    score: float
    reasons: tuple[Reason, ...]


def score_significance(
    text: str,
    learned: float | None,
    rules: SignificanceRules,
    answer: float = 0.0,
    *,
    asks: bool = False,
    fallback: str = ENGLISH,
) -> SignificanceScore:
    """Score what was said.

    Args:
        learned: the significance classifier's log odds; None if the model has no classifier. It
            was trained on English and does not decide about other languages.
        rules: the companion's own phrases, weights and minimum scores.
        answer: its minimum score for what it answers (see `short_answers`), 0 to 1.
        asks: whether it is a question of the user and states nothing: then its words, which are
            those of a statement, count neither as signals nor for a minimum score.
        fallback: the language where it is unsure.
    """
    text = text[:MAX_CHARS]
    signals = [
        Reason(signal.name, (rules.signals or {}).get(signal.name, signal.weight))
        for signal in signals_in("" if asks else text, fallback)
    ]
    minimums = _minimum_scores(text, rules, answer, asks=asks, fallback=fallback)
    reasons = [reason for reason in (*signals, *minimums) if reason.score > 0]
    score = max(
        [sum(signal.score for signal in signals), *(minimum.score for minimum in minimums)],
        default=0.0,
    )
    english = language_of(text, fallback) == ENGLISH
    if rules.learned is False or _says_nothing(text, fallback):
        pass
    elif learned is None or not english:
        stated = 0.0 if english and asks else _statement_score(text, fallback)
        score = max(score, stated)
        if stated:
            reasons.append(Reason("statement", stated))
    else:
        learned_score = 2 * _LEARNED_AT_BOUNDARY / (1 + math.exp(-_LEARNED_SLOPE * learned))
        score = max(score, learned_score)
        if round(learned_score, 2) > 0:
            reasons.append(Reason("learned", round(learned_score, 2)))
        if english and not asks and len(text) <= _MAX_NEWS_CHARS and _NEWS.search(text):
            score = max(score, _NEWS_SCORE)
            reasons.append(Reason("statement", _NEWS_SCORE))
    reasons.sort(key=lambda reason: -reason.score)
    return SignificanceScore(round(min(1.0, score), 2), tuple(reasons))


def significance_by_words(text: str) -> float:
    """Return what a text scores by its words alone, with the default rules, 0 to 1.

    Summaries, episodes, topics and notes score the same sentences over and over.
    """
    return (_cached_score if len(text) <= _MAX_CACHED_CHARS else _score_by_words)(text)


def _score_by_words(text: str) -> float:
    return score_significance(text, None, SignificanceRules()).score


_cached_score = erasable_cache(4_000)(_score_by_words)


def _says_nothing(text: str, fallback: str) -> bool:
    """Return whether a text has no word that tells anything, or only repeats a few."""
    words = words_of(text)
    different = len(set(words))
    if len(words) >= _MIN_REPEATED and 4 * different <= len(words) and different <= _MAX_FEW:
        return True
    terms = set(terms_of(text, fallback)) - _EMPTY_TERMS
    told = any(len(set(term)) > 1 or term.isdecimal() for term in terms)
    return not told and not unspaced_chars(text)


def _statement_score(text: str, fallback: str) -> float:
    """Return what a statement scores without a classifier; 0 for anything else."""
    if not utterances.states(text, fallback):
        return 0.0
    return _OWN_STATEMENT if utterances.is_about_speaker(text, fallback) else _STATEMENT


def score_from_rating(
    text: str,
    rating: int,
    rules: SignificanceRules,
    answer: float = 0.0,
    *,
    asks: bool = False,
    fallback: str = ENGLISH,
) -> SignificanceScore:
    """Score what was said by a language model's rating of its poignancy, 1 to 10.

    The significance is a tenth of it: by default 1 and 2 are not kept, and 9 and 10 never fade.
    The rating replaces the signals and the classifier, but not the minimum scores.
    """
    minimums = _minimum_scores(text, rules, answer, asks=asks, fallback=fallback)
    reasons = sorted(
        (reason for reason in (Reason("model", rating / 10), *minimums) if reason.score > 0),
        key=lambda reason: -reason.score,
    )
    return SignificanceScore(reasons[0].score, tuple(reasons))


def score_as_requested(verdict: SignificanceScore, threshold: float) -> SignificanceScore:
    """Raise a score to that of what a user asks to remember, which is kept in any case.

    Args:
        threshold: from which score on turns are kept.
    """
    requested = Reason("requested", max(_REQUESTED, threshold))
    reasons = sorted((*verdict.reasons, requested), key=lambda reason: -reason.score)
    return SignificanceScore(max(verdict.score, requested.score), tuple(reasons))


def _minimum_scores(
    text: str, rules: SignificanceRules, answer: float, *, asks: bool, fallback: str
) -> list[Reason]:
    """Return the minimum scores that apply to a text, the companion's own phrases included."""
    text = text[:MAX_CHARS]
    folded = text.casefold()
    return [
        *(
            Reason(minimum.name, (rules.floors or {}).get(minimum.name, minimum.score))
            for minimum in minimum_scores_in("" if asks else text, fallback)
        ),
        *(
            Reason("companion's phrase", score)
            for phrase, score in (rules.phrases or {}).items()
            if phrase.casefold() in folded
        ),
        *([Reason("answer", answer)] if answer else []),
    ]
