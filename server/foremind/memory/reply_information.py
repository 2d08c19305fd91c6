"""Whether a companion's reply tells anything that was not known: most of them do not. Pure.

Replies repeat what the player has said, ask, and sympathise. Kept like the player's words, they
would be half of all memories, and much the same.
"""

import re
from collections.abc import Iterable
from functools import cache

from foremind.text.languages import utterances
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, UNSPACED
from foremind.text.questions import is_pure_question
from foremind.text.sentences import QUESTION_MARKS, sentences_in
from foremind.text.tokenization import MAX_CHARS, names_in, terms_of

# New terms that a sentence needs: what its speaker promises, about its speaker, about something
# else, or to its listener.
_PROMISED, _OF_SPEAKER, _OF_OTHERS, _TO_LISTENER = 1, 2, 3, 4
_UNSPACED_FACTOR = 3  # more of them where terms are characters and pairs of these
_OWN = re.compile(r"\b(?:i|i'm|my|mine|me|we|our|us)\b", re.IGNORECASE)
_PROMISE = re.compile(r"\b(?:i promise|i swear)\b", re.IGNORECASE)
_LISTENER = re.compile(r"\b(?:you|your|yours|yourself|let's)\b", re.IGNORECASE)
_GESTURE = re.compile(r"\*(?:\w+ ?){1,3}\*")  # "*smiles warmly*"
# Stems of words that sympathise, praise, or keep a conversation going.
_COURTESY = frozenset(
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
        return _COURTESY
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
