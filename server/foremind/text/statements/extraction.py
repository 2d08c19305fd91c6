"""Extracts what speakers state about themselves: where they live, what they are called. Pure.

A clause is read only if all of it is understood; whatever stands beside it in the sentence must at
least leave its truth alone. Everything else states nothing here: no fact is better than a wrong
one, and the text itself is remembered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from foremind.runtime.caches import erasable_cache
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.statements.chat_text import ChatSentence, chat_sentences
from foremind.text.statements.clauses import Polarity, Statement
from foremind.text.statements.constructions import ClauseReading, read_clause, read_request
from foremind.text.statements.vocabulary import PRESENT, pattern
from foremind.text.tokenization import MAX_CHARS

_MAX_SENTENCE_CHARS = 300  # a longer one is a story
_MAX_PARTS, _MAX_JOINED = 14, 4  # of a sentence, and of a clause


def statements_in(text: str, fallback: str = ENGLISH) -> list[Statement]:
    """Return what the beginning of `text` states about its speaker, without duplicates.

    Of what is corrected within the text, only the last counts. Nothing if the text is in another
    language than English; `fallback` is the language where that is unsure.
    """
    return list(_statements_in(text[:MAX_CHARS])) if language_of(text, fallback) == ENGLISH else []


@erasable_cache(500)
def _statements_in(text: str) -> tuple[Statement, ...]:
    """Return what an English text states; half a dozen parts of a flow read the same message."""
    reader = _StatementReader()
    for sentence in chat_sentences(text):
        reader.read(sentence)
    return tuple(dict.fromkeys(reader.statements))


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
        self._introduces = False  # whether somebody was greeted
        self._noun = ""  # the relative or animal mentioned last

    def read(self, sentence: ChatSentence) -> None:
        """Read a sentence; one that takes back what was said removes it."""
        text = sentence.text
        if len(text) > _MAX_SENTENCE_CHARS:
            self._last = None
            return
        if (retraction := pattern("retraction").match(text)) is not None:
            self.statements = [statement for statement in self.statements if not statement.holds]
            text = text[retraction.end() :]
        asked = pattern("asked_to").match(text) if sentence.asks else None
        if asked is not None:
            text = text[asked.end() :]
        elif sentence.asks:
            text = _before_question(text)
        self._introduces |= pattern("intro").search(text) is not None
        if pattern("of_oneself").search(text) or (self._last and pattern("correction").match(text)):
            before = self.statements[:]
            self._read_parts(text)
            if self.statements == before and self._last and pattern("amends").match(text):
                self._remove(self._last)

    def _read_parts(self, text: str) -> None:
        """Read the longest parts that are understood; one that may take back the rest ends it."""
        breaks = [match.span() for match in pattern("break").finditer(text)]
        starts = [0, *(end for _, end in breaks)]
        ends = [*(start for start, _ in breaks), len(text)]
        if len(starts) > _MAX_PARTS:
            return
        before, start, whole = list(self.statements), 0, True
        readings: list[ClauseReading] = []
        neighbour: ClauseReading | None = None
        while start < len(starts):
            joint = text[ends[start - 1] : starts[start]].strip().lower() if start else ""
            for end in range(min(len(ends), start + _MAX_JOINED) - 1, start - 1, -1):
                following = text[ends[end] : starts[end + 1]].lower() if end + 1 < len(ends) else ""
                words = text[starts[start] : ends[end]].strip()
                reading = self._reading(_SentencePart(words, joint, following, neighbour))
                if reading is not None:
                    self._add(reading)
                    readings.append(reading)
                    neighbour, start = reading, end + 1
                    break
            else:
                unread, _, _ = _opened(text[starts[start] : ends[start]].strip())
                is_label = text[ends[start] :].startswith(":") and not readings
                if unread and (is_label or not _harmless(unread, joint, readings)):
                    self.statements = before
                    return
                mentioned = pattern("mentioned").search(unread)
                self._noun = mentioned["noun"] if mentioned else ""
                whole &= not unread or pattern("intro").match(unread) is not None
                neighbour, start = None, start + 1
        for reading in readings:  # "I'm Hangry", "I'm Windows, he's Mac"
            alone = len(readings) == 1 and not self._introduces
            if reading.frame == "i am " and (alone or not whole):
                self._remove(reading, frozenset(("name",)))

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
        if request := read_request(part.text):
            return request
        if pattern("forget").match(part.text):
            return read_clause(part.text)
        listed = part.joint.endswith(("and", "or", "&")) and part.text.lower().startswith("no ")
        clause, denied, corrects = (part.text, False, False) if listed else _opened(part.text)
        if not clause:
            return None
        if denied:
            clause = pattern("past").sub(lambda past: PRESENT[past[0].lower()], clause, count=1)
        elif request := read_request(clause):
            return request
        if corrects and self._last is not None and self._last.frame:
            reading = read_clause(_in_frame(self._last.frame, clause)) or read_clause(clause)
            if reading is None and len(clause.split()) <= 2:
                reading = ClauseReading(())  # another value, which is not understood
            if reading is not None:
                self._remove(self._last)
                return reading
        for candidate, polarity in self._candidates(clause, part):
            reading = read_clause(candidate, polarity)
            if reading is not None:
                so = (
                    replace(stated, holds=stated.holds and not denied)
                    for stated in reading.statements
                )
                return replace(reading, statements=tuple(so))
        return None

    def _candidates(self, clause: str, part: _SentencePart) -> Iterator[tuple[str, Polarity]]:
        """Yield a clause as it stands, and with the subject or verb that it leaves out."""
        used_to, stopped = pattern("used_to").match(clause), pattern("stopped").match(clause)
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
        its_name = pattern("its_name").match(clause)
        if its_name is not None and self._noun:
            yield f"my {self._noun}'s name is {clause[its_name.end() :]}", "yes"
        elided = pattern("elided").match(clause)
        of_speaker = part.before is not None and part.before.frame.startswith("i ")
        if elided is not None and (not part.joint or (of_speaker and part.joint == ",")):
            yield f"i {'am ' if elided['state'] else ''}{clause}", "yes"


def _after(
    clause: str, part: _SentencePart, before: ClauseReading
) -> Iterator[tuple[str, Polarity]]:
    """Yield a clause with words of the one just before it, which it shares or refers to."""
    instead = pattern("instead").match(clause)
    if instead is not None and not before.is_taste:  # "it's Rob"; not "I hate tea, it's bitter"
        yield before.frame + clause[instead.end() :], "yes"
    if clause.lower().startswith("not ") and not part.joint.endswith("and"):
        yield before.frame + clause[4:], "no"
    if part.joint.endswith("but") and before.polarity == "no":
        yield _in_frame(before.frame, clause), "yes"
    if pattern("verb").match(clause) and before.frame.startswith("i "):
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
            start.match(clause)
            for start in (pattern("denial"), pattern("correction"), pattern("opening"))
        )
        longest = max((denial, correction, opening), key=lambda match: match.end() if match else 0)
        if not longest or not longest.end():
            return clause.strip(" ,.!"), denied, corrects
        denied ^= longest is denial
        corrects |= longest is correction
        clause = clause[longest.end() :]


def _harmless(unread: str, joint: str, readings: Sequence[ClauseReading]) -> bool:
    """Return whether a part that is not understood leaves the truth of those before it alone.

    It must be a clause of its own, with a subject, or tell more of the relative or animal named
    before; at the beginning it may be a short exclamation.
    """
    words = unread.lower().split()
    odd = joint.endswith("or") or words == ["you"] or words[-1] == "like" or " Am " in unread
    if odd or pattern("tainted").search(unread):
        return False
    begins = pattern("new_subject").match(unread) is not None
    if not readings:
        return begins or len(words) <= 3
    of_other = joint == "and" and readings[-1].frame.lower().startswith(("my ", "our "))
    slots = {statement.slot for statement in readings[-1].statements}
    if of_other and slots <= {"family", "pets"}:
        return True
    goes_on = joint.endswith(("and", "but", "as")) or words[0] in ("not", "only")
    return (begins and joint != "as") or not goes_on


def _before_question(text: str) -> str:
    """Return what precedes the question in a sentence; a tag question takes it all back."""
    question = pattern("question").search(text)
    if question is None or pattern("tag").fullmatch(question[0]):
        return ""
    asked = question[0].strip(" ,;–—-").split()
    return text[: question.start()].strip() if len(asked) > 1 or asked == ["wbu"] else ""
