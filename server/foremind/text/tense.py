"""Whether what a text says of a time is past or to come. Pure.

Somebody who says on a Thursday "I have an exam on Friday" means the next day, and with "I had an
exam on Friday" the week before. What is stated looks ahead unless its verb is past; what is asked
looks back unless its verb is of the future. English only.
"""

import re
from collections.abc import Iterator
from typing import Literal

from foremind.text.languages.utterances import is_pure_question

Direction = Literal["back", "ahead"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SENTENCE_END = re.compile(r"[.!?…;\n]+[\"”)\]]*(?=\s|$)")
_SUBJECT = r"(?:i|im|ive|id|i'\w+|we|we'\w+|you|he|she|it|they|it's|my|our|his|her|their|the|there)"
_CLAUSE_END = re.compile(
    rf"[,:()]| [-–—] |\b(?:but|because|cause|cuz|while|although|though|when|where|which|who|if)\b|"
    rf"\b(?:and|so|since|that|until|before|after|as)(?= {_SUBJECT}\b)",
    re.IGNORECASE,
)
_PERSONS = frozenset({"i", "we", "you", "he", "she", "they", "it"})
_PRONOUN = re.compile(rf"\b(?:{'|'.join(_PERSONS)}|im|ive)\b", re.IGNORECASE)
_WORD = re.compile(r"[a-z']+", re.IGNORECASE)
_MAX_BARE_WORDS = 3  # of a clause without a verb that shares that of its sentence
_PREPOSITIONS = _words("on at in for of by the")

_PAST_AUXILIARIES = _words(
    "was were did had wasn't weren't didn't hadn't couldn't wasnt werent didnt hadnt couldnt used"
)
_PRESENT_BE = _words(
    """am is are i'm im you're we're they're he's she's it's that's 's isn't aren't isnt arent
    theyre be being get gets getting gotten"""
)
_HAVE = _words(
    "have has having i've we've you've they've ive weve theyve youve haven't hasn't havent hasnt"
)
_DO = _words(
    """do does don't doesn't dont doesnt let let's lets want wants need needs hope hopes plan plans
    must can can't cant could might may should shouldn't would wouldn't i'd we'd they'd"""
)
_FUTURE = _words(
    """will won't wont shall gonna gotta i'll we'll you'll they'll he'll she'll it'll that'll
    there'll"""
)
# Of what is on a timetable; the forms of other persons are nouns, too.
_SCHEDULED = _words(
    "starts begins opens leaves departs arrives comes returns flies closes ends finishes takes goes"
)
_PRESENT = _PRESENT_BE | _HAVE | _DO | _SCHEDULED
_BEFORE_BASE_FORM = _FUTURE | _DO | _PAST_AUXILIARIES | {"to", "please", "not"}
_PAST_FORMS = _words(
    """went came saw got met said told made took gave found left lost felt heard began ate drank
    drove flew rode ran sang slept spoke spent stood swam taught thought threw understood woke won
    wore wrote bought brought broke built caught chose drew fell forgot forgave froze grew held
    hid kept knew led lent paid rang rose sent shook shot sat stole stuck swore tore became bled
    blew bent dealt dug fed fought lit meant sold sought shone showed slid spun sprang stung
    struck swept burnt learnt dreamt spelt sank shrank laid lied died split quit"""
)
# They are the same in the present, but nobody says of a coming day "I cut my finger on Friday".
_SAME_FORMS = _words("read put cut hit hurt quit shut spread set beat cast cost")
_PARTICIPLES = _words(
    """been gone seen done taken given written eaten driven flown forgotten broken chosen spoken
    worn drunk sung begun known shown fallen grown"""
)
_NO_PAST = _words(
    """need feed speed seed bleed breed exceed proceed succeed indeed hundred wed red bed shed sled
    kindred naked sacred wicked biased supposed embed"""
)
_DETERMINERS = _words(
    """a an the my our your his her their its this that these those some any no one two three every
    very so really too quite more most pretty"""
)
_ADVERBS = _words(
    "not so really very all fully finally just already still now both also never ever even probably"
)
_PLANNING = _words(
    """booked scheduled planned arranged reserved rescheduled postponed signed registered enrolled
    agreed decided promised invited moved due set entered applied"""
)
_FEELINGS = _words(
    """excited worried scared terrified stressed thrilled psyched pumped stoked relieved prepared
    crossed overwhelmed petrified interested tired"""
)
# What one has ahead of oneself with "got": "got my exam on Friday", unlike "got my visa on Friday".
_EVENT = (
    r"(?:exams?|finals|midterms?|tests?|quiz|interviews?|appointments?|surgery|operation|dates?|"
    r"meetings?|weddings?|part(?:y|ies)|concerts?|flights?|shifts?|work|class(?:es)?|school|"
    r"lessons?|presentation|deadline|audition|recital|match|(?<!new )game|race|marathon|"
    r"competition|check-?up|dentist|doctor|therapy|scan|mri|hearing|trial|court|viva|defen[cs]e|funeral|"
    r"(?:big|busy|long) day|day off|visitors|guests|plans|performance|gig|show|rehearsal|training)"
)
_BEFORE_TIME = r"(?:,? (?:on|at|in|for|by|this|next|the))*\s*$"
_GOT_EVENT = re.compile(rf"\b{_EVENT}{_BEFORE_TIME}", re.IGNORECASE)
_FOR_EVENT = re.compile(
    rf"\b(?:for|to) (?:the|an?|\w+'s|my|our|his|her|their) (?:[\w'-]+ ){{0,2}}(?:{_EVENT}|festival|"
    rf"trip|birthday|anniversary|graduation|prom|dinner|holiday|ceremony|picnic|barbecue|baptism)"
    rf"{_BEFORE_TIME}",
    re.IGNORECASE,
)
_PREPARING = _words("bought ordered packed invited rented borrowed")
# Who says so has it before them, also if they say "got".
_WISH = re.compile(
    r"\b(?:wish (?:me|us|him|her|them) (?:luck|well|strength|the best)|pray(?:ers)? for|"
    r"break a leg|(?:fingers?|toes) (?:are )?crossed|cross(?:ing)? (?:your|my|ur) (?:fingers|toes)|"
    r"dreading|hop(?:e|ing) (?:it goes|(?:i|we|she|he|they) (?:pass|make|win|get|survive|do))|"
    r"(?:good|positive) (?:vibes|thoughts|luck)|can'?t wait|cannot wait|look(?:ing)? forward|"
    r"(?:i'?m|so|really|super|kinda|bit|very|pretty) (?:nervous|scared|anxious|stressed|terrified|"
    r"worried))\b",
    re.IGNORECASE,
)
_HABIT = re.compile(
    r"\b(?:usually|always|often|sometimes|normally|typically|generally|every year|each year)\b",
    re.IGNORECASE,
)
# What is liked is no event, nor is what a season is like: "the woods are so lovely in the fall".
_YEARLY = re.compile(
    r"(?:(?:in|at|on|over|during|around|the|early|late|mid)[ -])+"
    r"(?!\w+day\b|tonight|tomorrow)[a-z']+(?: day| eve)?",
    re.IGNORECASE,
)
_LIKING = re.compile(
    r"\b(?:enjoy|love|prefer|hate|adore|favou?rite|"
    r"(?:i|we|you|they|he|she|who|really|don't) like)s?\b",
    re.IGNORECASE,
)
_DESCRIBED = re.compile(
    r"(?:\b(?:is|are|be|gets?|looks?)|'s|'re) (?:so|very|most|more|especially|particularly|"
    r"absolutely|extremely|quite|too|pretty) (?!going\b)\w+(?: here| there| outside)? $",
    re.IGNORECASE,
)
_WOULD = re.compile(r"\b(?:would|\w+'d|id)\b", re.IGNORECASE)
_REMEMBERED = re.compile(r"(?:remember|recall)\b(?! to\b)", re.IGNORECASE)
_PLANNED_FOR = re.compile(r"\b(?:for|until|till|by|to)(?: the| this| next)?\s*$", re.IGNORECASE)
_PLANNED_BY = re.compile(r"(?:until|till|by)\b", re.IGNORECASE)
_BE = re.compile(r"\b(?:am|is|are)\b|'(?:m|s|re)\b", re.IGNORECASE)
_ING = re.compile(r"[a-z]ing\b", re.IGNORECASE)

_Mark = tuple[int, Direction]


def directions_of(text: str, start: int, end: int, *, undecided: bool) -> tuple[Direction, ...]:
    """Return in which directions the time that `text` names between two characters may lie.

    Args:
        text: with plain apostrophes.
        undecided: what neither states nor asks, such as words that are searched for, may be either.

    None if it is a habit: "we usually swim on Sunday", "I love skating during winter".
    """
    first, last = _surrounding(_SENTENCE_END, text, 0, len(text), start, end)
    sentence = text[first:last]
    mark = "?" if "?" in text[last : last + 3].partition(" ")[0] else ""
    asked = is_pure_question(f"{sentence}{mark}")
    begin, stop = _surrounding(_CLAUSE_END, text, first, last, start, end)
    marks = list(_marks(text, begin, stop, start, end))
    others = f"{text[begin:start]} {text[end:stop]}"
    bare_words = [word for word in _WORD.findall(others.lower()) if word not in _PREPOSITIONS]
    if not marks and not _PRONOUN.search(others) and len(bare_words) <= _MAX_BARE_WORDS:
        marks = list(_marks(text, first, last, start, end))
    is_habit = (
        (asked or not undecided)
        and (_HABIT.search(sentence) or text[start:end].lower().startswith("during"))
    ) or (_YEARLY.fullmatch(text, start, end) and _tells_no_event(text[begin:stop], start - begin))
    if is_habit and not _is_definite(sentence, marks):
        return ()
    if asked:
        return _asked_directions(sentence, marks, start)
    if marks:
        return (_nearest(marks, start),)
    if undecided:
        return ("back", "ahead")
    is_bare = set(_WORD.findall(f"{text[first:start]} {text[end:last]}".lower())) <= _PREPOSITIONS
    return ("back",) if is_bare else ("ahead",)


def _surrounding(
    ends: re.Pattern[str], text: str, first: int, last: int, start: int, end: int
) -> tuple[int, int]:
    """Return where the part of `text` begins and stops that contains what is between two places."""
    begin, stop = first, last
    for match in ends.finditer(text, first, last):
        if match.end() <= start:
            begin = match.end()
        elif match.start() >= end:
            stop = match.start()
            break
    return begin, stop


def _nearest(marks: list[_Mark], start: int) -> Direction:
    """Return the direction of the last verb before a time, failing that of the first after it."""
    before = [direction for place, direction in marks if place < start]
    return before[-1] if before else marks[0][1]


def _asked_directions(sentence: str, marks: list[_Mark], start: int) -> tuple[Direction, ...]:
    """Return the directions of a question: back, or ahead in the future, or in the present both."""
    if any(direction == "back" for _, direction in marks):
        return (_nearest(marks, start),) if _will(sentence) else ("back",)
    if _will(sentence) or _is_under_way(sentence):
        return ("ahead",)
    return ("back", "ahead") if marks else ("back",)


def _tells_no_event(clause: str, start: int) -> bool:
    """Return whether a clause with a time at `start` says what is liked, or what it is like."""
    if _LIKING.search(clause):
        return not _WOULD.search(clause) and not _is_under_way(clause)
    return _DESCRIBED.search(clause, 0, start) is not None


def _is_under_way(text: str) -> bool:
    be = _BE.search(text)
    return be is not None and _ING.search(text, be.end()) is not None


def _is_definite(sentence: str, marks: list[_Mark]) -> bool:
    """Return whether something was or will be, and not merely is from time to time."""
    return _will(sentence) or any(direction == "back" for _, direction in marks)


def _will(sentence: str) -> bool:
    return any(word in _FUTURE for word in _WORD.findall(sentence.lower()))


def _marks(text: str, begin: int, stop: int, start: int, end: int) -> Iterator[_Mark]:
    """Yield where a part of a text has finite verbs, besides the time, and their directions."""
    words = [
        (match.start(), match[0].lower())
        for match in _WORD.finditer(text, begin, stop)
        if not start <= match.start() < end
    ]
    for index, (place, word) in enumerate(words):
        direction = _direction_of(
            word, [earlier for _, earlier in words[max(0, index - 3) : index]]
        )
        if index and _REMEMBERED.match(text, place):
            direction = "back"
        if (
            direction == "back"
            and word in _PLANNING
            and (_PLANNED_FOR.search(text, begin, start) or _PLANNED_BY.match(text, start, end))
        ):
            direction = "ahead"
        if direction == "back" and _is_planned(word, text, place, start):
            direction = "ahead"
        if direction is not None:
            yield place, direction


def _is_planned(word: str, text: str, place: int, start: int) -> bool:
    """Return whether a word that may be past tells of what is to come at a time after it."""
    if word in _PREPARING:
        return _FOR_EVENT.search(text, place, start) is not None
    return word == "got" and bool(_GOT_EVENT.search(text, place, start) or _WISH.search(text))


def _direction_of(word: str, before: list[str]) -> Direction | None:
    """Return the direction of a word if it is a finite verb, given up to three words before it."""
    if word in _FUTURE or word in _PRESENT:
        return "ahead"
    if word in _PAST_AUXILIARIES:
        return None if word == "used" and before and before[-1] in _PRESENT_BE else "back"
    previous = next((other for other in reversed(before) if other not in _ADVERBS), "")
    if word in _SAME_FORMS:
        return "back" if previous in _PERSONS else None
    if word in _PARTICIPLES:
        return "back" if previous in _HAVE else None
    if word in _FEELINGS and previous not in _PERSONS:
        return None
    ends_in_ed = word.endswith("ed") and len(word) > 3 and word not in _NO_PAST
    if not ends_in_ed and word not in _PAST_FORMS:
        return None
    if previous in _HAVE | _PRESENT_BE | {"been"} and word in _PLANNING | {"got", "left"}:
        return "ahead"  # "I have booked", "I've got", "we've been invited"
    if previous in _DETERMINERS | _PRESENT_BE | _BEFORE_BASE_FORM | {"been"}:
        return None  # "a delayed flight", "we are closed"
    return "back"
