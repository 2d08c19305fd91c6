"""What short answers and replies say: "Biscuit." needs the question before it. Pure.

Whether a companion's reply tells anything that was not known: most of them do not.

Replies repeat what the player has said, ask, and sympathise. Kept like the player's words, they
would be half of all memories, and much the same.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.text.languages import utterances
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, UNSPACED
from foremind.text.languages.utterances import is_pure_question, is_question, is_turn_of_phrase
from foremind.text.sentences import QUESTION_MARKS, sentences_in
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import MAX_CHARS, names_in, terms_of, words_of

# New terms that a sentence needs: what its speaker promises, about its speaker, about something
# else, or to its listener.
_PROMISED, _OF_SPEAKER, _OF_OTHERS, _TO_LISTENER = 1, 2, 3, 4
_UNSPACED_FACTOR = 3  # more of them where terms are characters and pairs of these
_OWN = re.compile(r"\b(?:i|i'm|my|mine|me|we|our|us)\b", re.IGNORECASE)
_PROMISE = re.compile(r"\b(?:i promise|i swear)\b", re.IGNORECASE)
_LISTENER = re.compile(r"\b(?:you|your|yours|yourself|let's)\b", re.IGNORECASE)
_GESTURE = re.compile(r"\*(?:\w+ ?){1,3}\*")  # "*smiles warmly*"
# Stems of words that sympathise, praise, or keep a conversation going.
_COURTESIES = frozenset(
    terms_of(
        """absolutely admire adorable ah alright always amazing anything appreciate awesome aww
        beautiful believe best better blessed brave bright care catch charming cheer chance chat
        comfort congratulations cool course curious dear definitely delighted delightful deserve
        detail dream enjoy enough everything exactly excellent excited exciting fantastic feel
        feeling feelings fine forward friend fun glad good gosh grateful great guess hand happen
        happy hard hear heart hello help hey hi hm hmm honest honestly hope hopefully hug huge
        idea imagine important incredible indeed inspiring interested interesting journey joy
        keep kind know let life like listen listening little look lot lots love lovely loving
        luck lucky make maybe mean mhm mind moment morning nice night oh ok okay part perfect
        perhaps person pleased pleasure precious pretty proud ready real really remember right
        sad safe say see sense share sharing sigh smile soft somebody someone something soon
        sorry sound special story strength strong support supportive sure sweet sympathy take
        talk tell thank thanks thing things think thought thoughts thrilled time today together
        told tough treasure true truly trust understand understandable warm way welcome well
        whatever whenever wish wonder wonderful wonderfully word words worry wow yay yeah yes
        day evening experience remind meet hold bring bit must can could would should will get
        go come give try need want never much many new first lately again still even also quite
        rather"""
    )
)


def _is_noise(term: str) -> bool:
    return term.isascii() and len(set(term)) == 1


@cache
def _fillers(code: str) -> frozenset[str]:
    """Return the terms that say nothing new in a language."""
    if code == ENGLISH:
        return _COURTESIES
    return frozenset(term for word in LANGUAGES[code].fillers for term in terms_of(word, code))


def is_informative(reply: str, known: Iterable[str], language: str = ENGLISH) -> bool:
    """Return whether a sentence of a reply states something that is not in `known`.

    Args:
        known: what was said before, what is remembered of it, and the names of both speakers.
        language: of what does not tell its language.
    """
    known_terms = {term for text in known for term in terms_of(text, language)}
    return any(
        _is_news(sentence, known_terms, language)
        for sentence in sentences_in(_GESTURE.sub(" ", reply[:MAX_CHARS]))
    )


def _is_news(sentence: str, known: set[str], language: str) -> bool:
    if sentence.rstrip(" \n\"'”’)*").endswith(QUESTION_MARKS) or is_pure_question(
        sentence, language
    ):
        return False
    code = language_of(sentence, language)
    new = {
        term
        for term in terms_of(sentence, code)
        if term not in known and term not in _fillers(code) and not _is_noise(term)
    }
    if code != ENGLISH:
        factor = _UNSPACED_FACTOR if LANGUAGES[code].script in UNSPACED else 1
        own = utterances.is_about_speaker(sentence, code)
        return len(new) >= factor * (_OF_OTHERS if own else _TO_LISTENER)
    if _PROMISE.search(sentence):
        return len(new) >= _PROMISED
    if _LISTENER.search(sentence):
        names = {term for name in names_in(sentence) for term in terms_of(name)} & new
        return len(new) >= (_OF_OTHERS if names or _OWN.search(sentence) else _TO_LISTENER)
    return len(new) >= (_OF_SPEAKER if _OWN.search(sentence) else _OF_OTHERS)


#: Significance of an answer to a question about oneself: the default threshold.
MIN_ANSWER_SCORE = 0.30
_MAX_WORDS = 8  # a longer answer can be understood by itself
_MAX_CHARS = 16_000  # a longer text is no short answer, however few its words
_MAX_QUESTION_CHARS = 400  # characters that are examined, from the end

_ENDS_AS_QUESTION = re.compile(r"\?[^\w?]{0,12}$")
_SPEAKER_LABEL = re.compile(r"^[A-Z][^\W\d_]*(?: [A-Z][^\W\d_]*)?: ")  # "Ross Geller: No."
_TRAILING_MARKS = re.compile(r"\W+$")  # a full stop, an emoji
_STATEMENT_ENDS = (".", "!", "…")
_SENTENCE_END = re.compile(r"[.!?…]\s+")
_OPENING = r"^\W*(?:(?:and|so|but|oh|well|then|now)\b\W*){0,2}"
# Questions about the listener: "Where do you live?", "Who is your teacher?"; "Was it what you
# expected?" is about what was said.
_ABOUT_YOU = re.compile(
    rf"{_OPENING}(?:(?:who|whom|whose|what|when|where|which|how)\b.*\b(?:you|your|yours)\b|"
    r"(?:are|were|do|did|have|had|is|was|has)\b(?! (?:it|that|this)\b).{0,20}"
    r"\b(?:you|your|yours)\b|(?:your|any)\b)",
    re.IGNORECASE,
)
# Whatever a companion asks, it asks about the user: "What's her name?", "How many?"
_ASKS_PLAYER = re.compile(
    rf"{_OPENING}(?:who|whom|whose|what|when|where|which|how)(?:[’']\w+)? \w", re.IGNORECASE
)
# Inverted word order makes a question without a question mark: "what is your name".
_INVERTED = re.compile(
    rf"{_OPENING}(?:(?:who|whom|whose|what|when|where|which|how)"
    r"(?:[’']?s|[’']?re|"
    r"(?: (?!the\b|an?\b|i\b|you|we\b|he\b|she\b|it\b|they\b|that\b)[\w’']+){0,3} "
    r"(?:is|are|was|were|do|does|did|have|has|had|would|will|can|should))\b.*\b(?:you|your)\b|"
    r"(?:are|were|do|did|have|had) you\b|(?:is|was|does|did|has) your\b)",
    re.IGNORECASE,
)
# Polite phrases before a question: "Could you tell me your address?", "May I ask your birthday?"
_COURTESY = re.compile(
    rf"{_OPENING}(?:please,? )?(?:"
    r"(?:(?:can|could|will|would|might) you (?:please |kindly |maybe |also )?)?(?:tell|remind) me|"
    r"(?:can|could|may|might) i (?:please |just |also |perhaps )?(?:ask(?: you)?|know|have|get)|"
    r"(?:do|would) you mind (?:telling me|if i ask(?:ed)?)|let me ask(?: you)?|"
    r"i(?:[’']d| would) (?:like|love) to (?:know|hear)|i (?:want to know|wonder)"
    r")(?: please)?\b[\s,:–—-]*",
    re.IGNORECASE,
)
_CLAUSE_BREAK = re.compile(r"[,;:–—]\s+|\s-\s")  # "By the way, where do you live?"
# "What would you like to do?" asks about the present moment only.
_FOR_NOW = re.compile(
    r"\b(?:(?:would|do) you (?:like|want|prefer) to|next|"
    r"(?:shall|should|can|may|could) (?:i|we)(?! call you)|"
    r"you (?:doing|up to|mean|think|say|sure|believe|know|see|hear|feel|agree|need|mind)|"
    r"are you (?:now|there|today|doing|going|ok|okay|ready|alright|all right|kidding|serious|crazy|"
    r"coming|done|still|even|really|telling|saying|talking)|"
    r"you(?:[’']re| are) (?:ready|there|done|back|going|coming|doing|ok|okay|sure)|"
    r"you (?:want|wish)\W*$|"
    r"your (?:attention|opinion|help|hand|permission|thoughts?|turn|seat|order)|"
    r"you there|you today|(?:going|wrong|matter) with you)\b",
    re.IGNORECASE,
)
# Stems, as from `terms_of`, of words that answer nothing by themselves.
_FILLERS = frozenset(
    terms_of(
        "ok okay sure thanks thank good great fine nice cool well bad right true exactly maybe "
        "perhaps probably possibly definitely absolutely certainly course know idea guess think "
        "suppose hope dunno nothing something anything none never mind forget whatever sorry "
        "please hello hi hey bye yeah yep yup nope nah indeed sound sounds lol lmao rofl haha hehe "
        "kind sort really quite pretty much little bit lot many stuff thing things like say said "
        "wait hold let see later soon now today much come go going good-bye goodbye god wow gonna "
        "wanna cannot tell secret pass next question ask matter care anyway hm hmm um uh huh"
    )
)
_INTERJECTION = re.compile(
    r"^(?:(?:ha|he|hi|ho|la)+h?|[aeo]+h*|a+w+|u+[hm]+|h+u+h+|h*m+|e+r+m*|n+o+|n+a+h+|y+e+s+|y+[ae]+h*|"
    r"y+a+y+|o+k+|(.)\1+)$"
)


def is_short_answer(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether a text could be a whole answer: few words, some of them informative."""
    text = _SPEAKER_LABEL.sub("", text)
    if len(text) > _MAX_CHARS:
        return False
    if _ENDS_AS_QUESTION.search(text[-_MAX_QUESTION_CHARS:]) or len(text.split()) > _MAX_WORDS:
        return False
    if language_of(text, fallback) != ENGLISH and not utterances.has_content(text, fallback):
        return False
    informative = [
        term
        for term in terms_of(text, fallback)
        if term not in _FILLERS and not _INTERJECTION.match(term)
    ]
    return bool(informative) and not is_question(text, fallback)


def asks_about_listener(text: str, speaker: Speaker) -> bool:
    """Return whether the last sentence asks for something about the listener."""
    tail = text[-_MAX_QUESTION_CHARS:]
    if _ENDS_AS_QUESTION.search(tail):
        sentence, end = _SENTENCE_END.split(tail[: tail.rindex("?") + 1])[-1], "?"
    else:
        stripped = _TRAILING_MARKS.sub("", tail)
        sentence, end = _SENTENCE_END.split(stripped)[-1], tail[len(stripped) :].strip()[:1]
    starts = [0, *(match.end() for match in _CLAUSE_BREAK.finditer(sentence))]
    return any(_asks(sentence[start:], speaker, end, first=not start) for start in starts)


def _asks(part: str, speaker: Speaker, end: str, *, first: bool) -> bool:
    """Return whether part of a sentence asks about the listener.

    Args:
        part: the sentence from its beginning, or from a clause break, to its end.
        end: its final punctuation.
        first: whether the part begins where the sentence does.
    """
    courtesy = _COURTESY.match(part)
    if courtesy is not None:
        part = part[courtesy.end() :]
    if is_turn_of_phrase(part) or _FOR_NOW.search(part):
        return False
    if courtesy is None and not (end == "?" and first):
        return end not in _STATEMENT_ENDS and _INVERTED.match(part) is not None
    if _ABOUT_YOU.match(part):
        return True
    return speaker == "companion" and end == "?" and _ASKS_PLAYER.match(part) is not None


def question_answered(
    turns: Sequence[ExchangeTurn], position: int, fallback: str = ENGLISH
) -> ExchangeTurn | None:
    """Return the question to which the turn at `position` is a short answer, if any."""
    if not position or not is_short_answer(turns[position].content, fallback):
        return None
    previous = turns[position - 1]
    if previous.speaker == turns[position].speaker:
        return None
    is_marked = _ENDS_AS_QUESTION.search(previous.content[-_MAX_QUESTION_CHARS:]) is not None
    return (
        previous if is_marked or asks_about_listener(previous.content, previous.speaker) else None
    )


def question_to_keep(
    turns: Sequence[ExchangeTurn], position: int, fallback: str = ENGLISH
) -> int | None:
    """Return the id of the question that the turn at `position` makes worth keeping, if any.

    Only the companion's: for a user's message, clients have already been told the outcome. What
    states a fact, such as "My dog is called Rex", is understood without a question.
    """
    question = question_answered(turns, position, fallback)
    if question is None or question.memory_id is not None or question.speaker != "companion":
        return None
    if _states_fact(turns[position].content, fallback):
        return None
    return question.id if asks_about_listener(question.content, question.speaker) else None


def _states_fact(text: str, fallback: str) -> bool:
    """Return whether a text says what is so; "My uncle Pete" is only a value."""
    words = {*words_of(text)} - {"my", "our"}
    return any(not words <= {*words_of(fact.content)} for fact in statements_in(text, fallback))


def answer_score(
    turns: Sequence[ExchangeTurn],
    position: int,
    threshold: float,
    minimum: float,
    own_score: Callable[[ExchangeTurn], float],
    fallback: str = ENGLISH,
) -> float:
    """Return the minimum significance of a turn for what it answers; 0 if it answers nothing.

    An answer to a question that is kept scores as much as the question. An answer to a question
    about oneself scores at least `minimum`, and so does the companion's question, without which
    the answer could not be understood.

    Args:
        threshold: the significance from which turns are kept.
        own_score: returns the significance of a turn by itself.
        fallback: the language where it is unsure.
    """
    if (
        position + 1 < len(turns)
        and question_to_keep(turns, position + 1, fallback) == turns[position].id
    ):
        return minimum
    question = question_answered(turns, position, fallback)
    if question is None:
        return 0.0
    score = own_score(question)
    inherited = score if score >= threshold else 0.0
    about_oneself = asks_about_listener(question.content, question.speaker)
    return max(inherited, minimum if about_oneself else 0.0)
