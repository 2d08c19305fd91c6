"""Extracts what speakers state about themselves: where they live, what they are called. Pure.

A clause is read only if all of it is understood; whatever stands beside it in the sentence must at
least leave its truth alone. Everything else states nothing here: no fact is better than a wrong
one, and the text itself is remembered.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.statements import vocabulary
from foremind.text.statements.chat_text import ChatSentence, chat_sentences
from foremind.text.statements.clauses import Polarity, Statement
from foremind.text.statements.constructions import ClauseReading, read_clause
from foremind.text.statements.manner_requests import requests_in
from foremind.text.statements.vocabulary import pattern
from foremind.text.tokenization import MAX_CHARS

_MAX_SENTENCE_CHARS = 300  # a longer one is a story
_MAX_PARTS = 14  # of a sentence
_BREAK, _OPENING, _DENIAL, _CORRECTION, _WEAK_CORRECTION, _NO_CORRECTION, _I_MEAN = (
    pattern(name)
    for name in ("break", "opening", "denial", "correction", "weak_correction", "no_correction",
                 "i_mean")
)  # fmt: skip
_INSTEAD, _FORGET, _IT, _ITS_NAME, _MENTIONED, _PAST, _STOPPED, _USED_TO, _GREETING, _AMENDS = (
    pattern(name)
    for name in ("instead", "forget", "it", "its_name", "mentioned", "past", "stopped", "used_to",
                 "greeting", "amends")
)  # fmt: skip
_NEW_SUBJECT, _RETRACTION, _QUESTION, _ASKED_TO, _TAG, _ELIDED, _VERB, _OF_ONESELF, _TAINTED = (
    pattern(name)
    for name in ("new_subject", "retraction", "question", "asked_to", "tag", "elided", "verb",
                 "of_oneself", "tainted")
)  # fmt: skip
_IN_PRESENT = {"i was": "i am", "was": "is", "lived": "live", "had": "have", "liked": "like",
               "loved": "love", "worked": "work"}  # fmt: skip
# Slots whose values may go on where the clause was cut: "a safe | and loving home".
_NAME = frozenset(("name",))
_OPEN = frozenset(("likes", "dislikes", "goals", "favourites", "prefers"))


def statements_in(text: str, fallback: str = ENGLISH) -> list[Statement]:
    """Return what the beginning of `text` states about its speaker, without duplicates.

    Of what is corrected within the text, only the last counts. Nothing if the text is in another
    language than English; `fallback` is the language where that is unsure.
    """
    if language_of(text, fallback) != ENGLISH:
        return []
    reader = _StatementReader()
    for sentence in chat_sentences(text[:MAX_CHARS]):
        reader.read(sentence)
    return list(dict.fromkeys(reader.statements))


class _SentencePart(NamedTuple):
    """Some words of a sentence, and what stands around them."""

    text: str
    joint: str  # before it: ", and"
    following: str  # after it
    before: ClauseReading | None  # how the part just before it was read


class _StatementReader:
    """Reads sentence after sentence; `statements` are those that stand so far."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self._last: ClauseReading | None = None  # which may be corrected
        self._greeted = False
        self._noun = ""  # the relative or animal mentioned last

    def read(self, sentence: ChatSentence) -> None:
        """Read a sentence; one that takes back what was said removes it."""
        text = sentence.text
        if len(text) > _MAX_SENTENCE_CHARS:
            self._last = None
            return
        if (retraction := _RETRACTION.match(text)) is not None:
            self.statements = [statement for statement in self.statements if not statement.holds]
            text = text[retraction.end() :]
        if text:
            asked = _ASKED_TO.match(text) if sentence.asks else None
            if asked is not None:
                text = text[asked.end() :]
            elif sentence.asks:
                text = _before_question(text)
            if _OF_ONESELF.search(text) or (self._last and _CORRECTION.match(text)):
                self._greeted = _GREETING.match(text) is not None
                before = self.statements[:]
                self._read_parts(text)
                if self.statements == before and self._last and _AMENDS.match(text):
                    self._remove(self._last)

    def _read_parts(self, text: str) -> None:
        """Read the longest parts that are understood; one that may take back the rest ends it."""
        breaks = [match.span() for match in _BREAK.finditer(text)]
        starts, ends = (
            [0, *(end for _, end in breaks)],
            [*(start for start, _ in breaks), len(text)],
        )
        if len(starts) > _MAX_PARTS:
            return
        before, start = list(self.statements), 0
        neighbour: ClauseReading | None = None
        anything, understood = False, True
        bare: ClauseReading | None = None
        while start < len(starts):
            joint = text[ends[start - 1] : starts[start]].strip().lower() if start else ""
            for end in range(len(ends) - 1, start - 1, -1):
                following = text[ends[end] : starts[end + 1]].lower() if end + 1 < len(ends) else ""
                words = text[starts[start] : ends[end]].strip()
                reading = self._reading(_SentencePart(words, joint, following, neighbour))
                if reading is not None:
                    self._add(reading)
                    if reading.frame == "i am " and reading.statements[0].slot == "name":
                        bare = reading
                    neighbour, start, anything = reading, end + 1, True
                    break
            else:
                unread = text[starts[start] : ends[start]].strip()
                is_label = text[ends[start] :].startswith(":") and not anything
                if (is_label and unread) or not _harmless(unread, joint, leading=not anything):
                    self.statements = before
                    return
                if neighbour and joint.endswith("and") and not _NEW_SUBJECT.match(unread):
                    self._remove(neighbour, _OPEN)
                self._noun = mentioned["noun"] if (mentioned := _MENTIONED.search(unread)) else ""
                neighbour, start = None, start + 1
                understood &= not unread or unread.startswith("not ")
        if bare and not understood and not self._greeted:  # "I'm Windows, he's Mac"
            self._remove(bare, _NAME)

    def _add(self, reading: ClauseReading) -> None:
        """Add what was read; the name of what was only mentioned before replaces the mention."""
        for statement in reading.statements:
            if statement.value and statement.about and statement.about == self._noun:
                nameless = replace(statement, value="")
                self.statements = [other for other in self.statements if other != nameless]
            if statement.holds and statement.about:
                self._noun = statement.about
            self.statements.append(statement)
        self._last = reading

    def _remove(self, reading: ClauseReading, slots: frozenset[str] | None = None) -> None:
        """Remove what a reading stated, in some slots."""
        removed = [
            statement
            for statement in reading.statements
            if statement.holds and (slots is None or statement.slot in slots)
        ]
        self.statements = [other for other in self.statements if other not in removed]

    def _reading(self, part: _SentencePart) -> ClauseReading | None:
        """Return how a part is read, with what it corrects removed."""
        if manner := requests_in(part.text):
            return ClauseReading(manner)
        if _FORGET.match(part.text):
            return read_clause(part.text)
        listed = part.joint.endswith(("and", "or", "&")) and part.text.lower().startswith("no ")
        clause, denied, corrects = (part.text, False, False) if listed else _opened(part.text)
        if not clause:
            return None
        if denied:
            clause = _PAST.sub(lambda past: _IN_PRESENT[past[0].lower()], clause, count=1)
        elif manner := requests_in(clause):
            return ClauseReading(manner)
        if corrects and self._last is not None and self._last.frame:
            reading = self._corrected(
                clause, self._last, weak=_WEAK_CORRECTION.match(part.text) is not None
            )
            if reading is not None:
                self._remove(self._last)
                return reading
        for candidate, polarity in self._candidates(clause, part):
            reading = read_clause(candidate, polarity)
            if reading is not None:
                return _ended(reading) if denied else reading
        return None

    @staticmethod
    def _corrected(clause: str, last: ClauseReading, *, weak: bool) -> ClauseReading | None:
        """Return what a correction states: "no wait, green"; nothing where that is not understood.

        A `weak` one ("well, ...") need not be a correction.
        """
        reading = read_clause(_in_frame(last.frame, clause)) or (
            None if weak else read_clause(clause)
        )
        is_value = len(clause.split()) <= 2 and not _NO_CORRECTION.match(clause)
        return reading or (ClauseReading(()) if is_value and not weak else None)

    def _candidates(self, clause: str, part: _SentencePart) -> Iterator[tuple[str, Polarity]]:
        """Yield a clause as it stands, and with the subject or verb that it leaves out."""
        used_to, stopped = _USED_TO.match(clause), _STOPPED.match(clause)
        if used_to is not None:
            verb = "am " if used_to["be"] else ""
            yield f"{used_to['who']} {verb}{clause[used_to.end() :]}", "past"
            return
        if stopped is not None:
            verb = stopped["verb"].lower().removesuffix("ing")
            verb = {"be": "am", "liv": "live", "lik": "like", "lov": "love"}.get(verb, verb)
            yield f"{stopped['who']} {verb}{clause[stopped.end() :]}", "ended"
            return
        yield clause, "yes"
        if part.before is not None and part.before.frame:
            yield from _after(clause, part, part.before)
        if self._greeted:
            yield f"hello {clause}", "yes"
        its_name = _ITS_NAME.match(clause)
        if its_name is not None and self._noun:
            yield f"my {self._noun}'s name is {clause[its_name.end() :]}", "yes"
        elided = _ELIDED.match(clause)
        of_speaker = part.before is not None and part.before.frame.startswith("i ")
        if elided is not None and (not part.joint or (of_speaker and part.joint == ",")):
            yield from (
                (f"i {verb}{clause}", "yes")
                for verb in (("am ",) if elided["state"] else ("", "was "))
            )


def _after(
    clause: str, part: _SentencePart, before: ClauseReading
) -> Iterator[tuple[str, Polarity]]:
    """Yield a clause with words of the one just before it, which it shares or refers to."""
    instead, referring = _INSTEAD.match(clause), _IT.search(clause)
    if instead is not None:  # "it's Rob"
        yield before.frame + clause[instead.end() :], "yes"
    tasted = any(statement.slot in _OPEN for statement in before.statements)
    if referring is not None and before.value and tasted:  # "I love them"
        yield clause[: referring.start()] + before.value, "yes"
    if clause.lower().startswith("not ") and not part.joint.endswith("and"):
        yield before.frame + clause[4:], "no"
    if part.joint.endswith("but") and before.polarity == "no":
        yield _in_frame(before.frame, clause), "yes"
    if _VERB.match(clause) and before.frame.startswith("i "):
        yield f"i {clause}", "yes"
    listed = part.joint.endswith(("and", "or", "&")) or (
        part.joint == "," and part.following.strip(" ,").startswith(("and", "or", "&"))
    )
    of_being = before.frame.lower().endswith(" am ") and part.joint == ","
    if (listed or of_being) and before.shares_frame:
        yield before.frame + clause, before.polarity


def _in_frame(frame: str, clause: str) -> str:
    """Return a clause after words that it shares: "i work at ", "at Aldi" or "Aldi"."""
    shared = f"{frame.rsplit(maxsplit=1)[-1]} "
    return frame + (clause[len(shared) :] if clause.lower().startswith(shared) else clause)


def _opened(clause: str) -> tuple[str, bool, bool]:
    """Return a clause without its openings, and whether these deny it or correct what was said."""
    denied = corrects = False
    while True:
        denial, correction, opening = (
            start.match(clause) for start in (_DENIAL, _CORRECTION, _OPENING)
        )
        longest = max((denial, correction, opening), key=lambda match: match.end() if match else 0)
        if not longest or not longest.end():
            return _I_MEAN.sub("", clause.strip(" ,.!")), denied, corrects
        denied ^= longest is denial
        corrects |= longest is correction
        clause = clause[longest.end() :]


def _ended(reading: ClauseReading) -> ClauseReading:
    """Return a reading of which nothing holds."""
    statements = tuple(replace(statement, holds=False) for statement in reading.statements)
    return replace(reading, statements=statements)


def _harmless(unread: str, joint: str, *, leading: bool) -> bool:
    """Return whether a part that is not understood leaves the truth of the others alone."""
    words = unread.lower().split()
    if not words:
        return True
    if (
        joint.endswith("or")
        or words[0] == "only"
        or words in (["not"], ["you"])
        or words[-1] in ("like", "goes")
    ):
        return False
    if _TAINTED.search(unread) or " Am " in unread:
        return False
    begins = _NEW_SUBJECT.match(unread) is not None
    if leading:
        return begins or (len(words) <= 4 and words[0] not in vocabulary.PREPOSITIONS)
    tag = _TAG.fullmatch(unread) is not None or words[0] in ("had", "was", "were")
    return not tag and (begins or joint != "as")


def _before_question(text: str) -> str:
    """Return what precedes the question in a sentence; a tag question takes it all back."""
    question = _QUESTION.search(text)
    if question is None or _TAG.fullmatch(question[0]):
        return ""
    asked = question[0].strip(" ,;–—-").split()
    return text[: question.start()].strip() if len(asked) > 1 or asked == ["wbu"] else ""
