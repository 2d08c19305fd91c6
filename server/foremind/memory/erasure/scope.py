"""Finds everything that contains what is to be erased: turns, replies and records. Pure."""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from foremind.domain.erasure_texts import RecordText, TranscriptText
from foremind.memory.erasure.records import MADE_OF_TURNS, MIN_TERM_OVERLAP, QuotationIndex
from foremind.text.languages.utterances import is_pure_question
from foremind.text.mentions import Mention
from foremind.text.tokenization import terms_of
from foremind_models import UNREACHED

Matrix = npt.NDArray[np.float32]
Key = TypeVar("Key", bound=Hashable)

# Where few turns are erased, one shared term that occurs nowhere else is enough. Many terms of a
# whole session occur nowhere else by accident.
_FEW_TURNS = 20
# Terms that identify something by themselves: capitalised inside a sentence, or with digits.
_IDENTIFIERS = re.compile(r"(?<=[^\W\d_A-Z,;:] )[A-Z][\w'’-]+|(?<!\w)[^\W\d]*+\d[\w.,:]*")
_BATCH_SIZE = 512  # replies whose vectors are compared at once


class SimilarityThresholds(NamedTuple):
    """Minimum cosines of two texts about the same: in general, and if they share a rare term."""

    alike: float
    sharing_term: float


NEVER = SimilarityThresholds(UNREACHED, UNREACHED)


@dataclass(slots=True)
class RelationshipTexts:
    """Everything that was said in a relationship, and all states of its records.

    States of records have the key (record, revision), with revision 0 for the present one.
    """

    turns: dict[int, TranscriptText] = field(default_factory=dict)
    turn_corpus: QuotationIndex[int] = field(default_factory=QuotationIndex)
    records: dict[int, RecordText] = field(default_factory=dict)
    states: dict[tuple[int, int], RecordText] = field(default_factory=dict)
    state_corpus: QuotationIndex[tuple[int, int]] = field(default_factory=QuotationIndex)

    def add_turns(self, turns: Sequence[TranscriptText]) -> None:
        """Add turns."""
        self.turns |= {turn.id: turn for turn in turns}
        self.turn_corpus.add((turn.id, turn.content) for turn in turns)

    def add_records(self, records: Sequence[RecordText]) -> None:
        """Add records, or earlier states of them."""
        self.records |= {record.id: record for record in records if record.revision == 0}
        self.states |= {(record.id, record.revision): record for record in records}
        self.state_corpus.add(((record.id, record.revision), record.text) for record in records)


@dataclass(frozen=True, slots=True)
class ErasedContent:
    """What is to be erased: turns that were named or repeat them, replies, and states of records.

    `shortened` are states of which only some lines are erased, with the remaining text of each;
    `corrected` records that get the new text of a correction.
    """

    turns: frozenset[int] = frozenset()
    replies: frozenset[int] = frozenset()
    states: frozenset[tuple[int, int]] = frozenset()
    shortened: Mapping[tuple[int, int], str] = field(default_factory=dict)
    corrected: frozenset[int] = frozenset()


NOTHING = ErasedContent()


def find_erased_content(
    texts: RelationshipTexts,
    named_turns: Iterable[int],
    *,
    about: Mention | None = None,
    include_repetitions: bool = False,
    keep_other_mentions: bool = False,
    replacement: str | None = None,
    thresholds: SimilarityThresholds = NEVER,
) -> ErasedContent:
    """Return everything that contains what some turns say.

    Args:
        about: turns and states of records that mention this are erased.
        include_repetitions: also erase turns with the same text, whoever said it.
        keep_other_mentions: spare what the user also said elsewhere, and manual edits.
        replacement: the new text of the turns, if they are corrected.
        thresholds: minimum cosines of texts about the same.
    """
    turns = set(named_turns)
    if about is not None:
        turns |= {turn.id for turn in texts.turns.values() if about.found_in(turn.content)}
    contents = {texts.turns[turn].content for turn in turns if turn in texts.turns}
    if include_repetitions:
        turns |= {key for content in contents for key in texts.turn_corpus.quoting(content)}
        contents |= {texts.turns[turn].content for turn in turns if turn in texts.turns}
    if keep_other_mentions:
        # A reply that reads the same in another conversation, or has it in it, repeats nothing.
        contents = {texts.turns[turn].content for turn in turns if _is_of_user(texts, turn)}
        contents = {content for content in contents if not _said_elsewhere(texts, content, turns)}
    replies = _derived_replies(texts, turns, contents, replacement, thresholds)
    few = len(turns) <= _FEW_TURNS
    said = {key: state.text for key, state in texts.states.items()}
    states = _containing(texts.state_corpus, said, contents, about)
    # States made by a model or by rules are erased along with their sources.
    states |= {
        key for key in _resembling(texts.state_corpus, contents, few) if texts.states[key].is_manual
    }
    if keep_other_mentions:
        states = {key for key in states if not texts.states[key].is_manual}
    states |= {
        key for record in texts.records.values() for key in _taken_from(texts, record, turns)
    }
    corrected: set[int] = set()
    if replacement is not None:
        corrected = {record for record, revision in states if not revision} & _pins_of(
            texts, turns, contents
        )
        states -= {(record, 0) for record in corrected}
    remaining = {key: _remaining_lines(texts, key, contents, about, few) for key in states}
    shortened = {key: text for key, text in remaining.items() if text}
    return ErasedContent(
        frozenset(turns),
        frozenset(replies - turns),
        frozenset(states.difference(shortened)),
        shortened,
        frozenset(corrected),
    )


def _is_of_user(texts: RelationshipTexts, turn: int) -> bool:
    return turn in texts.turns and texts.turns[turn].speaker == "user"


def _said_elsewhere(texts: RelationshipTexts, content: str, turns: set[int]) -> bool:
    """Return whether the user also said something in a turn other than these."""
    others = texts.turn_corpus.quoting(content) - turns
    return any(texts.turns[other].speaker == "user" for other in others)


def _containing(
    corpus: QuotationIndex[Key],
    texts: Mapping[Key, str],
    contents: Iterable[str],
    about: Mention | None,
) -> set[Key]:
    """Return the texts, all of `corpus`, that mention something or quote one of the contents."""
    matches = {key for key, text in texts.items() if about is not None and about.found_in(text)}
    return matches.union(*(corpus.quoting(content) for content in contents))


def _resembling(corpus: QuotationIndex[Key], contents: Iterable[str], few: bool) -> set[Key]:
    """Return the texts with most terms of one of the contents; none unless these are few."""
    matches: set[Key] = set()
    return matches.union(
        *(corpus.sharing_terms_with(content, MIN_TERM_OVERLAP) for content in contents if few)
    )


def _taken_from(
    texts: RelationshipTexts, record: RecordText, turns: set[int]
) -> set[tuple[int, int]]:
    """Return the states of a user's record that were taken from turns.

    What was pinned on request is, as long as nobody edited it, and what was edited if it still
    mostly consists of what the turns say.
    """
    sources = record.turns & turns
    if not record.is_manual or not sources:
        return set()
    contents = [texts.turns[turn].content for turn in sources if turn in texts.turns]
    taken = {(record.id, 0)} if _consists_of(texts, record, contents) else set()
    if _goes_with_its_turn(record):
        earlier = [revision for other, revision in texts.states if other == record.id and revision]
        taken.add((record.id, min(earlier, default=0)))
    return taken


def _pins_of(texts: RelationshipTexts, turns: set[int], contents: Iterable[str]) -> set[int]:
    """Return the records that are corrected with turns: pinned on request, or the same by hand."""
    return {
        record.id
        for record in texts.records.values()
        if _goes_with_its_turn(record)
        and (record.turns & turns or _consists_of(texts, record, contents))
    }


def _goes_with_its_turn(record: RecordText) -> bool:
    return record.layer is not None and MADE_OF_TURNS[record.layer].of == "nothing"


def _consists_of(texts: RelationshipTexts, record: RecordText, contents: Iterable[str]) -> bool:
    """Return whether a record mostly consists of what one of the contents says."""
    terms = texts.state_corpus.terms.get((record.id, 0), frozenset())
    return bool(terms) and any(
        len(terms & set(terms_of(content))) >= MIN_TERM_OVERLAP * len(terms) for content in contents
    )


def _remaining_lines(
    texts: RelationshipTexts,
    key: tuple[int, int],
    contents: set[str],
    about: Mention | None,
    few: bool,
) -> str:
    """Return a manually edited core memory without the lines that contain erased content.

    Empty if no single line does, and for other layers, whose records make one statement each.
    """
    state, record = texts.states[key], texts.records.get(key[0])
    if record is None or record.layer != "hot" or not state.is_manual:
        return ""
    lines = [line for line in state.content.splitlines() if line.strip()]
    remaining = "\n".join(line for line in lines if not _mentions(line, contents, about, few))
    if len(remaining) == len("\n".join(lines)):
        return ""
    return "" if _mentions(f"{state.title}\n{remaining}", contents, about, few) else remaining


def _mentions(text: str, contents: set[str], about: Mention | None, few: bool) -> bool:
    corpus = QuotationIndex[int]()
    corpus.add([(0, text)])
    containing = _containing(corpus, {0: text}, contents, about)
    return bool(containing or _resembling(corpus, contents, few))


def _derived_replies(
    texts: RelationshipTexts,
    turns: set[int],
    contents: set[str],
    instead: str | None,
    thresholds: SimilarityThresholds,
) -> set[int]:
    """Return the companion's replies that answer, quote or paraphrase erased turns."""
    if not turns:
        return set()
    first = min(turns)
    later = [
        turn
        for turn in texts.turns.values()
        if turn.speaker == "companion" and turn.alive and turn.id > first and turn.id not in turns
    ]
    derived = {reply.id for reply in later if reply.reply_to in turns}
    quoting = {key for content in contents for key in texts.turn_corpus.quoting(content)}
    derived |= {reply.id for reply in later if reply.id in quoting}
    undecided = [reply for reply in later if reply.id not in derived]
    derived |= _sharing_unique_terms(texts, turns, instead, undecided, thresholds.sharing_term)
    undecided = [reply for reply in later if reply.id not in derived]
    derived |= _closest_in_meaning(texts, turns, undecided, thresholds.alike)
    return derived


def identifying_terms(text: str) -> set[str]:
    """Return the terms of a text that identify something by themselves: of names and numbers."""
    return {term for name in _IDENTIFIERS.findall(text) for term in terms_of(name)}


def _sharing_unique_terms(
    texts: RelationshipTexts,
    turns: set[int],
    instead: str | None,
    replies: Sequence[TranscriptText],
    min_cosine: float,
) -> set[int]:
    """Return the replies that share with erased turns terms of which the user's others have none.

    A name or number is enough. With other terms the reply's meaning must be similar, too: people
    say "hope" and "big" about everything.
    """
    unique = _unique_terms(texts, turns, instead)
    min_shared = 1 if len(turns) <= _FEW_TURNS else 2
    contents = [texts.turns[turn].content for turn in turns if turn in texts.turns]
    identifiers = frozenset[str]().union(*map(identifying_terms, contents))
    shared = {reply.id: texts.turn_corpus.terms[reply.id] & unique for reply in replies}
    candidates = [reply for reply in replies if len(shared[reply.id]) >= min_shared]
    matches = {
        reply.id for reply in candidates if reply.vector is None or shared[reply.id] & identifiers
    }
    erased = _matrix([texts.turns[turn] for turn in turns if _has_vector(texts, turn)])
    comparable = [reply for reply in candidates if reply.vector is not None]
    if not len(erased):
        return {reply.id for reply in candidates}
    for first in range(0, len(comparable), _BATCH_SIZE):
        batch = comparable[first : first + _BATCH_SIZE]
        cosines = (_matrix(batch) @ erased.T).max(axis=1)
        matches |= {
            reply.id for reply, cosine in zip(batch, cosines, strict=True) if cosine >= min_cosine
        }
    return matches


def _has_vector(texts: RelationshipTexts, turn: int) -> bool:
    return turn in texts.turns and texts.turns[turn].vector is not None


def _unique_terms(texts: RelationshipTexts, turns: set[int], instead: str | None) -> set[str]:
    """Return the terms of erased turns that nothing else the user said contains."""
    corrected = QuotationIndex[int]()
    corrected.add([(0, instead or "")])
    terms = {
        term for turn in turns if _is_of_user(texts, turn) for term in texts.turn_corpus.terms[turn]
    }
    return {
        term
        for term in terms - corrected.terms[0]
        if all(
            key in turns or texts.turns[key].speaker == "companion"
            for key in texts.turn_corpus.texts_with_term(term)
        )
    }


def _closest_in_meaning(
    texts: RelationshipTexts, turns: set[int], replies: Sequence[TranscriptText], min_cosine: float
) -> set[int]:
    """Return the replies that are closest to erased turns, or that answer a question which is.

    A reply counts as being about whatever user turn its meaning is closest to; if that turn is
    not erased, the reply stays.
    """
    statements = [
        turn
        for turn in texts.turns.values()
        if turn.speaker == "user" and turn.vector is not None and not is_pure_question(turn.content)
    ]
    erased = _matrix(
        [turn for turn in statements if turn.id in turns and turn.memory_id is not None]
    )
    kept_turns = [turn for turn in statements if turn.id not in turns]
    if not len(erased) or not replies:
        return set()
    matches: set[int] = set()
    kept = _matrix(kept_turns)
    for first in range(0, len(replies), _BATCH_SIZE):
        batch = replies[first : first + _BATCH_SIZE]
        for by_question in (False, True):
            pairs = [
                (reply, _compared_turn(texts.turns, reply, by_question=by_question))
                for reply in batch
            ]
            comparable = [(reply, turn) for reply, turn in pairs if turn is not None]
            if not comparable:
                continue
            matrix = _matrix([turn for _, turn in comparable])
            to_erased = (matrix @ erased.T).max(axis=1)
            to_kept = (
                matrix @ kept.T if kept_turns else np.full((len(comparable), 1), -1.0, np.float32)
            )
            for row, (reply, _) in enumerate(comparable):
                if to_erased[row] >= min_cosine and to_erased[row] > to_kept[row].max():
                    matches.add(reply.id)
    return matches


def _compared_turn(
    turns: Mapping[int, TranscriptText], reply: TranscriptText, *, by_question: bool
) -> TranscriptText | None:
    """Return a reply, or the question that it answers, if its vector is known."""
    turn = turns.get(reply.reply_to or 0) if by_question else reply
    if turn is None or turn.vector is None:
        return None
    return turn if not by_question or is_pure_question(turn.content) else None


def _matrix(turns: Sequence[TranscriptText]) -> Matrix:
    """Return the turns' vectors as rows, float32 [n, dimension]."""
    rows = [np.frombuffer(turn.vector or b"", ">f2", offset=4) for turn in turns]
    return np.asarray(rows, np.float32) if rows else np.empty((0, 0), np.float32)
