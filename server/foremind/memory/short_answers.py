"""Short answers: "Biscuit." says nothing alone, and all after "What's your dog's name?". Pure."""

import re
from collections.abc import Callable, Sequence

from foremind.domain.turn import ExchangeTurn, Speaker
from foremind.retrieval.recall_gate import is_question, is_turn_of_phrase
from foremind.text.tokenization import terms_of

LEAST = 0.30  # the significance of an answer to a question about oneself: the default threshold
_LONGEST = 8  # words; a longer answer says for itself what matters of it
_LONGEST_CHARS = 16_000  # more are no short answer, whatever they are
_LONGEST_QUESTION = 400  # characters looked at, the last ones

_ENDS_AS_QUESTION = re.compile(r"\?[^\w?]{0,12}$")
_SPEAKER = re.compile(r"^[A-Z][^\W\d_]*(?: [A-Z][^\W\d_]*)?: ")  # "Ross Geller: No."
_DECORATION = re.compile(r"\W+$")  # at the end: a full stop, a smile
_ENDS = (".", "!", "…")
_SENTENCE_END = re.compile(r"[.!?…]\s+")
_AND = r"^\W*(?:(?:and|so|but|oh|well|then|now)\b\W*){0,2}"
# What asks somebody for something about themselves: "Where do you live?", "Who is your teacher?"
_ABOUT_YOU = re.compile(
    rf"{_AND}(?:(?:who|whom|whose|what|when|where|which|how)\b.*\b(?:you|your|yours)\b|"
    r"(?:are|were|do|did|have|had|is|was|has)\b.{0,20}\b(?:you|your|yours)\b|(?:your|any)\b)",
    re.IGNORECASE,
)
# A companion that asks for anything asks the player: "What's her name?", "How many?"
_ASKS_PLAYER = re.compile(
    rf"{_AND}(?:who|whom|whose|what|when|where|which|how)(?:[’']\w+)? \w", re.IGNORECASE
)
# With the words turned round it asks without a question mark too: "what is your name".
_TURNED_ROUND = re.compile(
    rf"{_AND}(?:(?:who|whom|whose|what|when|where|which|how)"
    r"(?:[’']?s|[’']?re|"
    r"(?: (?!the\b|an?\b|i\b|you|we\b|he\b|she\b|it\b|they\b|that\b)[\w’']+){0,3} "
    r"(?:is|are|was|were|do|does|did|have|has|had|would|will|can|should))\b.*\b(?:you|your)\b|"
    r"(?:are|were|do|did|have|had) you\b|(?:is|was|does|did|has) your\b)",
    re.IGNORECASE,
)
# Courtesies before what is asked for: "Could you tell me your address?", "May I ask your birthday?"
_COURTESY = re.compile(
    rf"{_AND}(?:please,? )?(?:"
    r"(?:(?:can|could|will|would|might) you (?:please |kindly |maybe |also )?)?(?:tell|remind) me|"
    r"(?:can|could|may|might) i (?:please |just |also |perhaps )?(?:ask(?: you)?|know|have|get)|"
    r"(?:do|would) you mind (?:telling me|if i ask(?:ed)?)|let me ask(?: you)?|"
    r"i(?:[’']d| would) (?:like|love) to (?:know|hear)|i (?:want to know|wonder)"
    r")(?: please)?\b[\s,:–—-]*",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:–—]\s+|\s-\s")  # "By the way, where do you live?"
# "What would you like to do?" is about the next moment only.
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
# Answers that leave it open, and what is said to say something; stems, as of `terms_of`.
_EMPTY = frozenset(
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
_SOUND = re.compile(
    r"^(?:(?:ha|he|hi|ho|la)+h?|[aeo]+h*|a+w+|u+[hm]+|h+u+h+|h*m+|e+r+m*|n+o+|n+a+h+|y+e+s+|y+[ae]+h*|"
    r"y+a+y+|o+k+|(.)\1+)$"
)


def is_short_answer(text: str) -> bool:
    """Return whether a text could be all of an answer: few words, one of them telling."""
    text = _SPEAKER.sub("", text)
    if len(text) > _LONGEST_CHARS:
        return False
    if _ENDS_AS_QUESTION.search(text[-_LONGEST_QUESTION:]) or len(text.split()) > _LONGEST:
        return False
    telling = [each for each in terms_of(text) if each not in _EMPTY and not _SOUND.match(each)]
    return bool(telling) and not is_question(text)


def asks_about_other(text: str, speaker: Speaker) -> bool:
    """Return whether the last sentence asks for something about the one who is spoken to."""
    last = text[-_LONGEST_QUESTION:]
    if _ENDS_AS_QUESTION.search(last):
        sentence, end = _SENTENCE_END.split(last[: last.rindex("?") + 1])[-1], "?"
    else:
        bare = _DECORATION.sub("", last)
        sentence, end = _SENTENCE_END.split(bare)[-1], last[len(bare) :].strip()[:1]
    starts = [0, *(each.end() for each in _CLAUSE.finditer(sentence))]
    return any(_asks(sentence[start:], speaker, end, first=not start) for start in starts)


def _asks(part: str, speaker: Speaker, end: str, *, first: bool) -> bool:
    """Tell whether what a sentence says from its beginning, or from a comma, to its `end` asks."""
    courteous = _COURTESY.match(part)
    if courteous is not None:
        part = part[courteous.end() :]
    if is_turn_of_phrase(part) or _FOR_NOW.search(part):
        return False
    if courteous is None and not (end == "?" and first):
        return end not in _ENDS and _TURNED_ROUND.match(part) is not None
    if _ABOUT_YOU.match(part):
        return True
    return speaker == "companion" and end == "?" and _ASKS_PLAYER.match(part) is not None


def question_answered(around: Sequence[ExchangeTurn], here: int) -> ExchangeTurn | None:
    """Return the question that the turn at `here` answers shortly, if it does."""
    if not here or not is_short_answer(around[here].content):
        return None
    before = around[here - 1]
    if before.speaker == around[here].speaker:
        return None
    asked = _ENDS_AS_QUESTION.search(before.content[-_LONGEST_QUESTION:]) is not None
    return before if asked or asks_about_other(before.content, before.speaker) else None


def question_to_keep(around: Sequence[ExchangeTurn], here: int) -> int | None:
    """Return the question that is worth keeping since the turn at `here` answers it, if any.

    Only the companion's: what became of a player's own message has been told already.
    """
    question = question_answered(around, here)
    if question is None or question.memory_id is not None or question.speaker != "companion":
        return None
    return question.id if asks_about_other(question.content, question.speaker) else None


def answer_score(
    around: Sequence[ExchangeTurn],
    here: int,
    threshold: float,
    least: float,
    own_score: Callable[[ExchangeTurn], float],
) -> float:
    """Return the least significance that a turn has for what it answers; 0 for none.

    An answer to a question that is kept is worth as much as that; one to a question about oneself
    at least `least`, and so is the companion's question, without which nobody would understand it.

    Args:
        threshold: the significance from which turns are kept.
        own_score: what a turn is worth by itself.
    """
    if here + 1 < len(around) and question_to_keep(around, here + 1) == around[here].id:
        return least
    question = question_answered(around, here)
    if question is None:
        return 0.0
    score = own_score(question)
    kept = score if score >= threshold else 0.0
    return max(kept, least if asks_about_other(question.content, question.speaker) else 0.0)
