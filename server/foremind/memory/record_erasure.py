"""Decides what becomes of a record when something it contains or derives from is erased. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foremind.domain.erasure import RecordText
from foremind.domain.record import RecordLayer
from foremind.domain.relationship import ChangeSet

#: What is regenerated, by layer of the erased record, from its remaining source turns. The summary
#: is regenerated from the first turn on, and topics whenever there are new episodes.
_REGENERATED_FROM_TURNS: dict[RecordLayer, RecordLayer] = {
    "scratchpad": "scratchpad",
    "profile": "profile",
    "episodes": "episodes",
    "questions": "episodes",
}
#: Layers regenerated as a whole once one of their records is erased; of the profile what is
#: inferred.
_REGENERATED_WHOLE: tuple[RecordLayer, ...] = ("opening", "profile", "hot")


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
    from_turns = [
        ChangeSet(_REGENERATED_FROM_TURNS[source.layer], source.turns)
        for source in remaining
        if source.layer in _REGENERATED_FROM_TURNS and source.turns
    ]
    layers = [
        record.layer for record in erased if record.layer != "profile" or record.kind == "inferred"
    ]
    return [
        *_merged(from_turns),
        *(ChangeSet(layer, ()) for layer in _REGENERATED_WHOLE if layer in layers),
    ]


def regenerated_layers(remaining: Sequence[ChangeSet], erased: Sequence[RecordText]) -> list[str]:
    """Return the layer of each erased record that is regenerated; arguments as above."""
    whole = [
        record.layer
        for record in erased
        if record.layer in _REGENERATED_WHOLE or record.layer == "summary"
    ]
    from_turns = [
        source.layer
        for source in remaining
        if source.layer in _REGENERATED_FROM_TURNS and source.turns
    ]
    inferred = [
        record for record in erased if record.layer == "profile" and record.kind == "inferred"
    ]
    return [
        *from_turns,
        *(layer for layer in whole if layer and layer != "profile"),
        *("profile" for _ in inferred),
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
