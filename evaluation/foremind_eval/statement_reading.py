"""How well the rules read what people say about themselves, on labelled messages.

A line of a file is one message: `{"text", "at", "facts": [{"slot", "value"}], "plain"}`, as
described in `training/statements`. The rules may be tuned on the half `tuned`; which half a message
belongs to is told by its hash.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from foremind.domain.companion_rules import PROFILE_SLOTS
from foremind.domain.errors import InvalidFile
from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.tokenization import terms_of, words_of

Half = Literal["tuned", "held"]
HALVES: tuple[Half, ...] = ("tuned", "held")
_FORM_WORDS = frozenset("a an the in at on of to for from with as by my our and or".split())  # noqa: SIM905
_NEGATIONS = frozenset(("no", "not", "never", "without"))
_LIST = re.compile(r"\b(?:and|or)\b|,", re.IGNORECASE)
_CONTRACTED = re.compile(r"n't\b|(?<=\bdo)nt\b|(?<=\bca)nt\b")
_MAX_EXTRA_WORDS = 3
_DIGITS = {
    word: str(number)
    for number, word in enumerate("one two three four five six seven eight nine ten".split(), 1)  # noqa: SIM905
}


class LabelledFact(msgspec.Struct, frozen=True):
    """A fact of a message: the title of its slot, and its value, in several ways with "|"."""

    slot: str
    value: str


class LabelledMessage(msgspec.Struct, frozen=True):
    """A message, when it was said, its facts, and whether these are stated plainly."""

    text: str
    at: str = ""
    facts: tuple[LabelledFact, ...] = ()
    plain: bool = False

    @property
    def half(self) -> Half:
        """The half that it belongs to."""
        return HALVES[hashlib.sha256(self.text.encode()).digest()[0] % 2]


class ReadingScore(msgspec.Struct, frozen=True):
    """How many facts were read, how many of them wrongly, and how many plain ones there are."""

    messages: int
    read: int
    wrong: int
    plain: int
    plain_read: int
    wrong_of_read: float
    read_of_plain: float


class ReadingReport(ReadingScore, frozen=True):
    """The score of all messages, and of each half."""

    halves: dict[Half, ReadingScore]


def read_messages(path: Path) -> list[LabelledMessage]:
    """Read labelled messages.

    Raises:
        InvalidFile: names the line and what was expected.
    """
    messages = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.strip():
            try:
                messages.append(msgspec.json.decode(line, type=LabelledMessage))
            except msgspec.DecodeError as error:
                raise InvalidFile(f"{path}: line {number}: {error}") from None
    if not messages:
        raise InvalidFile(f"{path}: expected a labelled message on each line")
    return messages


def measure_reading(messages: Sequence[LabelledMessage]) -> ReadingReport:
    """Score the rules on labelled messages."""
    scores = {
        half: _score([message for message in messages if message.half == half]) for half in HALVES
    }
    return ReadingReport(**msgspec.structs.asdict(_score(messages)), halves=scores)


def misread(message: LabelledMessage) -> tuple[list[str], list[str]]:
    """Return the facts of a message that were read wrongly, and those that were not read."""
    entries = entries_of(statements_in(message.text))
    wanted = [(fact.slot, tuple(fact.value.split("|"))) for fact in message.facts]
    wrong = [entry for entry in entries if not any(_equal(entry, fact) for fact in wanted)]
    missed = [fact for fact in wanted if not any(_equal(entry, fact) for entry in entries)]
    return (
        [f"{slot}: {value}" for slot, value in wrong],
        [f"{slot}: {'|'.join(ways)}" for slot, ways in missed],
    )


def entries_of(statements: Iterable[Statement]) -> list[tuple[str, str]]:
    """Return titles and values as a profile would contain them after one message."""
    entries: list[tuple[str, str]] = []
    for statement in statements:
        slot = statement.title if statement.slot == "favourites" else statement.slot
        named = statement.slot == "names" and statement.about
        value = f"{named or ''} {statement.content}".strip()
        if not statement.holds:
            retracted = _stems(value)
            entries = [
                entry for entry in entries if entry[0] != slot or retracted - _stems(entry[1])
            ]
        else:
            if slot in PROFILE_SLOTS and not PROFILE_SLOTS[slot].many:
                entries = [entry for entry in entries if entry[0] != slot]
            entries.append((slot, value))
    return list(dict.fromkeys(entries))


def _score(messages: Sequence[LabelledMessage]) -> ReadingScore:
    read = wrong = plain = plain_read = 0
    for message in messages:
        wrongly, missed = misread(message)
        read += len(entries_of(statements_in(message.text)))
        wrong += len(wrongly)
        if message.plain:
            plain += len(message.facts)
            plain_read += len(message.facts) - len(missed)
    return ReadingScore(
        len(messages), read, wrong, plain, plain_read,
        round(wrong / max(1, read), 4), round(plain_read / max(1, plain), 4),
    )  # fmt: skip


def _equal(entry: tuple[str, str], fact: tuple[str, tuple[str, ...]]) -> bool:
    slots = {slot.casefold().replace("color", "colour") for slot, _ in (entry, fact)}
    return len(slots) == 1 and any(_same_value(entry[1], way) for way in fact[1])


def _same_value(read: str, labelled: str) -> bool:
    """Return whether a value is the labelled one, in more words of the message, or one of a list.

    "Small flat in Porto" is "Porto", and "no fish" one of "no meat or fish".
    """
    found, wanted = _stems(read), _stems(labelled)
    if wanted and wanted <= found:
        return len(found - wanted) <= _MAX_EXTRA_WORDS and not _NEGATIONS & (found - wanted)
    return bool(found) and found < wanted and _LIST.search(labelled) is not None


def _stems(value: str) -> set[str]:
    """Return the stems of the words that matter, numbers as digits, contractions in full."""
    plain = _CONTRACTED.sub(" not", value.casefold().replace("’", "'"))
    words = [word for word in words_of(plain) if word not in _FORM_WORDS]
    return {stem for word in words for stem in (terms_of(_DIGITS.get(word, word)) or [word])}
