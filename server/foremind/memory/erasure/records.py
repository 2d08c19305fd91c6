"""Decides what becomes of records and session states that contain what is erased. Pure."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from foremind.domain.erasure_texts import RecordText
from foremind.domain.record import RecordLayer
from foremind.domain.relationship import ChangeSet
from foremind.domain.session_state import SessionState
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.mentions import Mention
from foremind.text.tokenization import UNSPACED_RUN, count_terms, terms_of

Key = TypeVar("Key", bound=Hashable)

_MIN_QUOTE_CHARS = 8  # shorter texts occur everywhere
MIN_TERM_OVERLAP = 0.6  # a text with this share of another's terms counts as containing it


class QuotationIndex(Generic[Key]):
    """Texts by key with a posting list per term, so that no query scans every text."""

    def __init__(self) -> None:
        self.texts: dict[Key, str] = {}
        self.terms: dict[Key, frozenset[str]] = {}
        self._not_english: set[Key] = set()
        self._postings: defaultdict[str, set[Key]] = defaultdict(set)

    def add(self, texts: Iterable[tuple[Key, str]]) -> None:
        """Index more texts."""
        for key, text in texts:
            self.texts[key] = text.casefold()
            terms = self.terms[key] = frozenset(terms_of(text))
            if language_of(text) != ENGLISH:
                self._not_english.add(key)
            for term in terms.union(count_terms(text)):
                self._postings[term].add(key)

    def texts_with_term(self, term: str) -> set[Key]:
        """Return the texts that contain a term."""
        return self._postings.get(term, set())

    def quoting(self, quote: str) -> set[Key]:
        """Return the texts that contain another verbatim, ignoring case, and not within a word."""
        folded = quote.casefold().strip()
        if len(folded) < _MIN_QUOTE_CHARS:
            return set()
        return {key for key in self._quote_candidates(quote) if _quotes(self.texts[key], folded)}

    def sharing_terms_with(self, text: str, share: float) -> set[Key]:
        """Return the texts with at least this share of another's terms, and at least two."""
        terms = frozenset(terms_of(text))
        minimum = max(2, share * len(terms))
        if len(terms) < 2:
            return set()
        # A text with that many of the terms must contain at least one of the rarest.
        rarest_first = sorted(terms, key=self._document_frequency)
        rarest = rarest_first[: len(terms) - int(minimum) + 1]
        candidates = {key for term in rarest for key in self.texts_with_term(term)}
        return {key for key in candidates if len(self.terms[key] & terms) >= minimum}

    def _quote_candidates(self, quote: str) -> Iterable[Key]:
        """Return the texts that may contain a quote: those with its rarest term.

        A text in another language than the quote's has other terms for it.
        """
        if language_of(quote) != ENGLISH:
            return list(self.texts)
        # The first and last term may be part of a longer word, as in languages without spaces.
        whole_terms = terms_of(quote)[1:-1]
        if not whole_terms:
            return list(self.texts)
        rarest = min(whole_terms, key=self._document_frequency)
        return self.texts_with_term(rarest) | self._not_english

    def _document_frequency(self, term: str) -> int:
        return len(self.texts_with_term(term))


def _quotes(text: str, quote: str) -> bool:
    """Return whether a text contains another, where no word goes on before or after it."""
    place = text.find(quote)
    while place >= 0:
        end = place + len(quote)
        if not (_in_word(text[place - 1 : place + 1]) or _in_word(text[end - 1 : end + 1])):
            return True
        place = text.find(quote, place + 1)
    return False


def _in_word(beside: str) -> bool:
    """Return whether two characters beside each other are letters of one word."""
    return len(beside) == 2 and beside.isalnum() and not UNSPACED_RUN.search(beside)


_TASK = ""  # a key that no flag can have


def remaining_state(
    state: SessionState, about: Mention | None, erased_texts: Iterable[str]
) -> SessionState:
    """Return a state without the task or the flags that contain something erased.

    Args:
        about: a part that mentions this is erased.
        erased_texts: a part that quotes one of these, or contains most of its words, is erased.
    """
    texts = {
        _TASK: state.task,
        **{name: f"{_as_words(name)} {value}" for name, value in state.flags.items()},
    }
    parts = QuotationIndex[str]()
    parts.add(texts.items())
    erased = {name for name, text in texts.items() if about is not None and about.found_in(text)}
    for text in erased_texts:
        erased |= parts.quoting(text) | parts.sharing_terms_with(text, MIN_TERM_OVERLAP)
    flags = {name: value for name, value in state.flags.items() if name not in erased}
    return SessionState("" if _TASK in erased else state.task, flags)


def _as_words(name: str) -> str:
    return name.translate({ord(separator): " " for separator in "_.-"})


class Remaking(NamedTuple):
    """How what was made of a turn is made again once the turn is gone or says something else.

    `of`: the turns that remain of its sources; everything, by the first change afterwards; or
    nothing: it goes with its turn, and a correction of the turn is a correction of it. `layer`:
    whose step makes it again; None where that happens by itself.
    """

    of: Literal["its turns", "everything", "nothing"]
    layer: RecordLayer | None = None


#: What is made of turns, by layer, and what becomes of it with them: by an edit, another reply, a
#: correction and an erasure alike.
MADE_OF_TURNS: Mapping[RecordLayer, Remaking] = {
    "summary": Remaking("everything"),  # its cursor returns to the first turn
    "opening": Remaking("everything", "opening"),
    "episodes": Remaking("its turns", "episodes"),
    "topics": Remaking("everything"),  # whenever there is a new episode
    "profile": Remaking("its turns", "profile"),
    "scratchpad": Remaking("its turns", "scratchpad"),
    "questions": Remaking("its turns", "episodes"),
    "hot": Remaking("everything", "hot"),
    "vault": Remaking("nothing"),
}
#: What is inferred of the user is in the profile, but made of everything.
_INFERRED = Remaking("everything", "profile")


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """A record is deleted, kept, or reverted to revision `back_to`; `dropped` revisions go."""

    deleted: bool = False
    back_to: int | None = None
    dropped: tuple[int, ...] = ()

    @property
    def present_erased(self) -> bool:
        """Whether its present state is erased."""
        return self.deleted or self.back_to is not None


def decide_outcome(
    states: Sequence[RecordText], containing: Collection[int], *, derived: bool
) -> RecordOutcome:
    """Decide what becomes of one record.

    A state that somebody wrote stays unless it contains erased content, and so do earlier states
    that were edited manually. A state that background work derived from erased content is erased,
    and the record reverts to the last one that somebody wrote.

    Args:
        states: its present state first, then the earlier ones in order.
        containing: the revisions, 0 for the present, that contain erased content.
        derived: whether the record was derived from erased content.
    """
    present, *earlier = states
    erased = {
        state.revision
        for state in earlier
        if state.revision in containing or (derived and not state.is_manual)
    }
    if 0 not in containing and (present.is_manual or not derived):
        return RecordOutcome(dropped=tuple(sorted(erased)))
    kept = [state.revision for state in earlier if state.is_manual and state.revision not in erased]
    if not kept or present.is_manual:  # whoever wrote it replaced the earlier states deliberately
        return RecordOutcome(deleted=True)
    later = {state.revision for state in earlier if state.revision >= kept[-1]}
    return RecordOutcome(back_to=kept[-1], dropped=tuple(sorted(erased | later)))


def change_sets_to_regenerate(
    remaining: Sequence[ChangeSet], erased: Sequence[RecordText]
) -> list[ChangeSet]:
    """Return which turns of which layers are to be processed again; no turns stands for all.

    Args:
        remaining: for each erased record, its layer and its remaining source turns.
        erased: the erased records.
    """
    from_turns = [ChangeSet(layer, source.turns) for source, layer in _remade_of_turns(remaining)]
    whole = {
        layer for _, (of, layer) in _remakings(erased) if of == "everything" and layer is not None
    }
    return [
        *_merged(from_turns),
        *(ChangeSet(layer, ()) for layer in MADE_OF_TURNS if layer in whole),
    ]


def regenerated_layers(remaining: Sequence[ChangeSet], erased: Sequence[RecordText]) -> list[str]:
    """Return the layer of each erased record that is regenerated; arguments as above."""
    return [
        *(source.layer for source, _ in _remade_of_turns(remaining)),
        *(
            layer
            for layer, (of, remade) in _remakings(erased)
            if of == "everything" and (remade is not None or layer == "summary")
        ),
    ]


def _remade_of_turns(remaining: Sequence[ChangeSet]) -> list[tuple[ChangeSet, RecordLayer]]:
    """Return the sources that something is made of again, each with the layer whose step does."""
    return [
        (source, layer)
        for source in remaining
        for of, layer in [MADE_OF_TURNS[source.layer]]
        if of == "its turns" and layer is not None and source.turns
    ]


def _remakings(erased: Sequence[RecordText]) -> list[tuple[RecordLayer, Remaking]]:
    """Return the layer of each erased record, and how it is made again."""
    return [
        (
            record.layer,
            _INFERRED
            if (record.layer, record.kind) == ("profile", "inferred")
            else MADE_OF_TURNS[record.layer],
        )
        for record in erased
        if record.layer is not None
    ]


def _merged(change_sets: Sequence[ChangeSet]) -> list[ChangeSet]:
    """Merge change sets of a layer that share a turn, so that it is processed only once."""
    merged: list[ChangeSet] = []
    for change_set in change_sets:
        turns = set(change_set.turns)
        overlapping = [
            other
            for other in merged
            if other.layer == change_set.layer and turns & set(other.turns)
        ]
        merged = [other for other in merged if other not in overlapping]
        turns.update(*(other.turns for other in overlapping))
        merged.append(ChangeSet(change_set.layer, tuple(sorted(turns))))
    return merged
