"""What holds what is to be forgotten: turns that say it, replies made of it, records. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from foremind.memory.corpus import Corpus
from foremind.storage.forgetting import RecordText, SaidText

Matrix = npt.NDArray[np.float32]

# One shared word that nobody else says is enough where little is forgotten; of a whole session's
# words many are nobody else's by accident.
_FEW = 20
SHARE = 0.6  # of a text's words: what holds as many of them holds it
_AT_ONCE = 512  # replies that are compared at once


@dataclass(slots=True)
class Said:
    """Everything that was said in a relationship, and how it was put into records."""

    turns: dict[int, SaidText] = field(default_factory=dict)
    corpus: Corpus[int] = field(default_factory=Corpus)
    records: dict[int, RecordText] = field(default_factory=dict)
    written: Corpus[tuple[int, int]] = field(default_factory=Corpus)  # record, revision (0: now)

    def add_turns(self, turns: Sequence[SaidText]) -> None:
        """Take in more of what was said."""
        self.turns |= {each.id: each for each in turns}
        self.corpus.add((each.id, each.content) for each in turns)

    def add_records(self, records: Sequence[RecordText]) -> None:
        """Take in more records, or earlier states of them."""
        self.records |= {each.id: each for each in records if each.revision == 0}
        self.written.add(((each.id, each.revision), each.text) for each in records)


@dataclass(frozen=True, slots=True)
class Gone:
    """What goes: turns that were named or repeat them, replies made of these, and records.

    `written` are states of records (record, revision; 0 is the present one) that hold it.
    """

    turns: frozenset[int]
    replies: frozenset[int]
    written: frozenset[tuple[int, int]]


def all_that_holds(
    said: Said,
    named: Iterable[int],
    *,
    about: str | None = None,
    repeated: bool = False,
    replies: bool = True,
    instead: str | None = None,
    least_cosine: float = 1.0,
) -> Gone:
    """Return everything that holds what some turns say.

    Args:
        about: words of which every state of a record that holds them all goes.
        repeated: what says the same word for word elsewhere goes too, whoever says it.
        replies: whether what the companion said of them goes.
        instead: what the turns say from now on, where they are corrected and not forgotten.
        least_cosine: from which on two texts speak of the same.
    """
    turns = set(named)
    spoken = {said.turns[each].content for each in turns if each in said.turns}
    if repeated:
        turns |= {key for text in spoken for key in said.corpus.quoting(text)}
        spoken |= {said.turns[each].content for each in turns if each in said.turns}
    answers = _replies_made_of(said, turns, spoken, instead, least_cosine) if replies else set()
    written = {key for text in spoken for key in said.written.quoting(text)}
    if about is not None:
        written |= said.written.mentioning(about)
    for text in spoken if len(turns) <= _FEW else ():
        written |= {
            key
            for key in said.written.speaking_of(text, SHARE)
            if _by_hand(said, key)  # what was made by a model or rules follows its sources
        }
    return Gone(frozenset(turns), frozenset(answers - turns), frozenset(written))


def _by_hand(said: Said, key: tuple[int, int]) -> bool:
    record = said.records.get(key[0])
    return record is not None and key[1] == 0 and record.by_hand


def _replies_made_of(
    said: Said, turns: set[int], spoken: set[str], instead: str | None, least_cosine: float
) -> set[int]:
    """Return what the companion said of forgotten turns: in answer, quoting, or in other words."""
    if not turns:
        return set()
    first = min(turns)
    later = [
        each
        for each in said.turns.values()
        if each.speaker == "companion" and each.alive and each.id > first and each.id not in turns
    ]
    found = {each.id for each in later if each.reply_to in turns}
    quoting = {key for text in spoken for key in said.corpus.quoting(text)}
    found |= {each.id for each in later if each.id in quoting}
    own = _own_words(said, turns, instead)
    needed = 1 if len(turns) <= _FEW else 2
    found |= {each.id for each in later if len(said.corpus.terms[each.id] & own) >= needed}
    found |= _nearest_to(said, turns, [each for each in later if each.id not in found],
                         least_cosine)  # fmt: skip
    return found


def _own_words(said: Said, turns: set[int], instead: str | None) -> set[str]:
    """Return the words of forgotten turns that nothing else the user said holds."""
    kept = Corpus[int]()
    kept.add([(0, instead or "")])
    words = {
        term
        for each in turns
        if each in said.turns and said.turns[each].speaker == "user"
        for term in said.corpus.terms[each]
    }
    return {
        term
        for term in words - kept.terms[0]
        if all(
            key in turns or said.turns[key].speaker == "companion"
            for key in said.corpus.with_term(term)
        )
    }


def _nearest_to(
    said: Said, turns: set[int], replies: Sequence[SaidText], least_cosine: float
) -> set[int]:
    """Return the replies that come nearest, or answer what comes nearest, to forgotten turns.

    A reply is held to speak of whatever the user said that its meaning comes nearest to; where
    that is still there, the reply stays.
    """
    stated = [
        each
        for each in said.turns.values()
        if each.speaker == "user" and each.vector is not None
        and not _asks(each)
    ]  # fmt: skip
    gone = _rows([each for each in stated if each.id in turns and each.memory_id is not None])
    left = [each for each in stated if each.id not in turns]
    if not len(gone) or not replies:
        return set()
    found: set[int] = set()
    kept = _rows(left)
    for first in range(0, len(replies), _AT_ONCE):
        part = replies[first : first + _AT_ONCE]
        for asked in (False, True):
            pairs = [(each, _voiced(said.turns, each, asked=asked)) for each in part]
            near = [(each, which) for each, which in pairs if which is not None]
            if not near:
                continue
            matrix = _rows([which for _, which in near])
            to_gone = (matrix @ gone.T).max(axis=1)
            to_kept = matrix @ kept.T if left else np.full((len(near), 1), -1.0, np.float32)
            for row, (reply, _) in enumerate(near):
                if to_gone[row] >= least_cosine and to_gone[row] > to_kept[row].max():
                    found.add(reply.id)
    return found


def _voiced(turns: Mapping[int, SaidText], reply: SaidText, *, asked: bool) -> SaidText | None:
    """Return a reply, or the question that it answers, where its vector is known."""
    which = turns.get(reply.reply_to or 0) if asked else reply
    if which is None or which.vector is None or (asked and not _asks(which)):
        return None
    return which


def _asks(turn: SaidText) -> bool:
    return turn.content.rstrip().endswith("?")


def _rows(turns: Sequence[SaidText]) -> Matrix:
    made = [np.frombuffer(each.vector or b"", ">f2", offset=4) for each in turns]
    return np.asarray(made, np.float32) if made else np.empty((0, 0), np.float32)
