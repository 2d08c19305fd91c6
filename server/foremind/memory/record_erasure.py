"""Decides what becomes of a record when something it contains or derives from is erased. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from foremind.domain.erasure import RecordText
from foremind.domain.record import RecordLayer
from foremind.domain.relationship import ChangeSet


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
