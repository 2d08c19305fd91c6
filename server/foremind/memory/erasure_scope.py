"""What holds what is to be forgotten: turns that say it, replies made of it, records. Pure."""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from foremind.domain.erasure import RecordText, TranscriptText
from foremind.retrieval.index.bm25 import Corpus
from foremind.text.tokenization import terms_of

Matrix = npt.NDArray[np.float32]
Key = TypeVar("Key", bound=Hashable)

# One shared word that nobody else says is enough where little is forgotten; of a whole session's
# words many are nobody else's by accident.
_FEW = 20
# What stands for one thing alone: in the middle of a sentence, or with digits.
_NAMES = re.compile(r"(?<=[^\W\d_A-Z,;:] )[A-Z][\w'’-]+|\w*\d[\w.,:]*")
SHARE = 0.6  # of a text's words: what holds as many of them holds it
_AT_ONCE = 512  # replies that are compared at once


class Similarity(NamedTuple):
    """The cosines from which on two texts speak of the same: by themselves, or sharing a `word`."""

    matter: float
    word: float


NEVER = Similarity(1.1, 1.1)


@dataclass(slots=True)
class ErasedTexts:
    """Everything that was said in a relationship, and how it was put into records."""

    turns: dict[int, TranscriptText] = field(default_factory=dict)
    corpus: Corpus[int] = field(default_factory=Corpus)
    records: dict[int, RecordText] = field(default_factory=dict)
    states: dict[tuple[int, int], RecordText] = field(default_factory=dict)
    written: Corpus[tuple[int, int]] = field(default_factory=Corpus)  # record, revision (0: now)

    def add_turns(self, turns: Sequence[TranscriptText]) -> None:
        """Take in more of what was said."""
        self.turns |= {turn.id: turn for turn in turns}
        self.corpus.add((turn.id, turn.content) for turn in turns)

    def add_records(self, records: Sequence[RecordText]) -> None:
        """Take in more records, or earlier states of them."""
        self.records |= {record.id: record for record in records if record.revision == 0}
        self.states |= {(record.id, record.revision): record for record in records}
        self.written.add(((record.id, record.revision), record.text) for record in records)


@dataclass(frozen=True, slots=True)
class ErasedContent:
    """What goes: turns that were named or repeat them, replies made of these, and records.

    `written` are states of records (record, revision; 0 is the present one) that hold it, and
    `shortened` those of which only lines do, with what is left of each.
    """

    turns: frozenset[int] = frozenset()
    replies: frozenset[int] = frozenset()
    written: frozenset[tuple[int, int]] = frozenset()
    shortened: Mapping[tuple[int, int], str] = field(default_factory=dict)


NOTHING = ErasedContent()


def all_that_holds(
    said: ErasedTexts,
    named: Iterable[int],
    *,
    about: str | None = None,
    repeated: bool = False,
    alone: bool = False,
    instead: str | None = None,
    near: Similarity = NEVER,
) -> ErasedContent:
    """Return everything that holds what some turns say.

    Args:
        about: words of which every state of a record that holds them all goes.
        repeated: what says the same word for word elsewhere goes too, whoever says it.
        alone: what the user said of the same elsewhere, or anybody wrote by hand, is no part of it.
        instead: what the turns say from now on, where they are corrected and not forgotten.
        near: from which cosines on two texts speak of the same.
    """
    turns = set(named)
    spoken = {said.turns[turn].content for turn in turns if turn in said.turns}
    if repeated:
        turns |= {key for text in spoken for key in said.corpus.quoting(text)}
        spoken |= {said.turns[turn].content for turn in turns if turn in said.turns}
    if alone:
        spoken = {text for text in spoken if not _said_by_user(said, text, turns)}
    answers = _replies_made_of(said, turns, spoken, instead, near)
    few = len(turns) <= _FEW
    written = _exactly(said.written, spoken, about)
    # What was made by a model or rules follows its sources.
    written |= {key for key in _mostly(said.written, spoken, few) if said.states[key].by_hand}
    written |= {
        (record.id, 0) for record in said.records.values() if _taken_from(said, record, turns)
    }
    if alone:
        written = {key for key in written if not said.states[key].by_hand}
    rests = {key: _without(said, key, spoken, about, few) for key in written}
    shortened = {key: rest for key, rest in rests.items() if rest}
    return ErasedContent(
        frozenset(turns),
        frozenset(answers - turns),
        frozenset(written.difference(shortened)),
        shortened,
    )


def _said_by_user(said: ErasedTexts, text: str, without: set[int]) -> bool:
    """Tell whether the user says a text in other turns than some."""
    others = said.corpus.quoting(text) - without
    return any(said.turns[other].speaker == "user" for other in others)


def _exactly(corpus: Corpus[Key], spoken: Iterable[str], about: str | None) -> set[Key]:
    """Return the texts that hold all the words of `about`, or word for word what was spoken."""
    found = set() if about is None else corpus.mentioning(about)
    return found.union(*(corpus.quoting(text) for text in spoken))


def _mostly(corpus: Corpus[Key], spoken: Iterable[str], few: bool) -> set[Key]:
    """Return the texts that hold most words of something that was spoken, where it is not much."""
    found: set[Key] = set()
    return found.union(*(corpus.speaking_of(text, SHARE) for text in spoken if few))


def _taken_from(said: ErasedTexts, record: RecordText, turns: set[int]) -> bool:
    """Tell whether somebody's record was taken from turns, and says mostly what they say.

    As what is saved on request, or a note that was corrected.
    """
    own = said.written.terms.get((record.id, 0), frozenset())
    if not record.by_hand or not own:
        return False
    return any(
        len(own & said.corpus.terms[turn]) >= SHARE * len(own)
        for turn in record.turns & turns
        if turn in said.corpus.terms
    )


def _without(
    said: ErasedTexts,
    key: tuple[int, int],
    spoken: set[str],
    about: str | None,
    few: bool,
) -> str:
    """Return what is left of the hot context as somebody wrote it, without the lines that hold it.

    Nothing where no line does by itself, and for other layers: a record of theirs says one thing.
    """
    state, record = said.states[key], said.records.get(key[0])
    if record is None or record.layer != "hot" or not state.by_hand:
        return ""
    lines = [line for line in state.content.splitlines() if line.strip()]
    left = "\n".join(line for line in lines if not _speaks_of(line, spoken, about, few))
    whole = f"{state.title}\n{left}"
    return (
        "" if len(left) == len("\n".join(lines)) or _speaks_of(whole, spoken, about, few) else left
    )


def _speaks_of(text: str, spoken: set[str], about: str | None, few: bool) -> bool:
    corpus = Corpus[int]()
    corpus.add([(0, text)])
    return bool(_exactly(corpus, spoken, about) or _mostly(corpus, spoken, few))


def _replies_made_of(
    said: ErasedTexts, turns: set[int], spoken: set[str], instead: str | None, near: Similarity
) -> set[int]:
    """Return what the companion said of forgotten turns: in answer, quoting, or in other words."""
    if not turns:
        return set()
    first = min(turns)
    later = [
        turn
        for turn in said.turns.values()
        if turn.speaker == "companion" and turn.alive and turn.id > first and turn.id not in turns
    ]
    found = {each.id for each in later if each.reply_to in turns}
    quoting = {key for text in spoken for key in said.corpus.quoting(text)}
    found |= {each.id for each in later if each.id in quoting}
    found |= _speaking_of(
        said, turns, instead, [each for each in later if each.id not in found], near.word
    )
    found |= _nearest_to(said, turns, [each for each in later if each.id not in found],
                         near.matter)  # fmt: skip
    return found


def _speaking_of(
    said: ErasedTexts,
    turns: set[int],
    instead: str | None,
    replies: Sequence[TranscriptText],
    least: float,
) -> set[int]:
    """Return the replies that share with forgotten turns what nothing else the user said holds.

    A name or number is enough; any other word is where the reply is near in meaning, too: people
    say "hope" and "big" of everything.
    """
    own = _own_words(said, turns, instead)
    needed = 1 if len(turns) <= _FEW else 2
    told = frozenset(
        term
        for turn in turns
        if turn in said.turns
        for name in _NAMES.findall(said.turns[turn].content)
        for term in terms_of(name)
    )
    shared = {reply.id: said.corpus.terms[reply.id] & own for reply in replies}
    worded = [reply for reply in replies if len(shared[reply.id]) >= needed]
    found = {each.id for each in worded if each.vector is None or shared[each.id] & told}
    gone = _rows([said.turns[turn] for turn in turns if _has_vector(said, turn)])
    near = [each for each in worded if each.vector is not None]
    if not len(gone):
        return {each.id for each in worded}
    for first in range(0, len(near), _AT_ONCE):
        part = near[first : first + _AT_ONCE]
        cosines = (_rows(part) @ gone.T).max(axis=1)
        found |= {each.id for each, cosine in zip(part, cosines, strict=True) if cosine >= least}
    return found


def _has_vector(said: ErasedTexts, turn: int) -> bool:
    return turn in said.turns and said.turns[turn].vector is not None


def _own_words(said: ErasedTexts, turns: set[int], instead: str | None) -> set[str]:
    """Return the words of forgotten turns that nothing else the user said holds."""
    kept = Corpus[int]()
    kept.add([(0, instead or "")])
    words = {
        term
        for turn in turns
        if turn in said.turns and said.turns[turn].speaker == "user"
        for term in said.corpus.terms[turn]
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
    said: ErasedTexts, turns: set[int], replies: Sequence[TranscriptText], least_cosine: float
) -> set[int]:
    """Return the replies that come nearest, or answer what comes nearest, to forgotten turns.

    A reply is held to speak of whatever the user said that its meaning comes nearest to; where
    that is still there, the reply stays.
    """
    stated = [
        turn
        for turn in said.turns.values()
        if turn.speaker == "user" and turn.vector is not None
        and not _asks(turn)
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
            near = [(pair, which) for pair, which in pairs if which is not None]
            if not near:
                continue
            matrix = _rows([which for _, which in near])
            to_gone = (matrix @ gone.T).max(axis=1)
            to_kept = matrix @ kept.T if left else np.full((len(near), 1), -1.0, np.float32)
            for row, (reply, _) in enumerate(near):
                if to_gone[row] >= least_cosine and to_gone[row] > to_kept[row].max():
                    found.add(reply.id)
    return found


def _voiced(
    turns: Mapping[int, TranscriptText], reply: TranscriptText, *, asked: bool
) -> TranscriptText | None:
    """Return a reply, or the question that it answers, where its vector is known."""
    which = turns.get(reply.reply_to or 0) if asked else reply
    if which is None or which.vector is None or (asked and not _asks(which)):
        return None
    return which


def _asks(turn: TranscriptText) -> bool:
    return turn.content.rstrip().endswith("?")


def _rows(turns: Sequence[TranscriptText]) -> Matrix:
    made = [np.frombuffer(turn.vector or b"", ">f2", offset=4) for turn in turns]
    return np.asarray(made, np.float32) if made else np.empty((0, 0), np.float32)
