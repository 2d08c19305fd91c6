"""What becomes of a record when something that it holds, or was made of, is forgotten. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foremind.domain.erasure import RecordText
from foremind.domain.record import RecordLayer
from foremind.domain.relationship import ChangeSet

#: What is made again of what is left of the turns that records of a layer were made of. The summary
#: is made again from the first turn on, and topics whenever there are new episodes.
_AGAIN: dict[RecordLayer, RecordLayer] = {
    "scratchpad": "scratchpad",
    "profile": "profile",
    "episodes": "episodes",
    "questions": "episodes",
}
#: What is made again of everything, where one of its records went; of the profile what is inferred.
_WHOLE: tuple[RecordLayer, ...] = ("opening", "profile", "hot")


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """A record is deleted, kept as it is, or taken `back_to` a revision; `dropped` states go."""

    deleted: bool = False
    back_to: int | None = None
    dropped: tuple[int, ...] = ()

    @property
    def goes(self) -> bool:
        """Whether its present state goes."""
        return self.deleted or self.back_to is not None


def fate_of(
    states: Sequence[RecordText], holding: Collection[int], *, made_of_it: bool
) -> RecordOutcome:
    """Decide on one record.

    What somebody wrote stays unless it holds what is forgotten, with the earlier states that were
    written by hand; what background work made of what is forgotten goes, and what somebody had
    written before it holds again.

    Args:
        states: its present state first, then the earlier ones in order.
        holding: the revisions, 0 for the present, that hold what is forgotten.
        made_of_it: whether it was made of what is forgotten.
    """
    present, *earlier = states
    goes = {
        each.revision
        for each in earlier
        if each.revision in holding or (made_of_it and not each.by_hand)
    }
    if 0 not in holding and (present.by_hand or not made_of_it):
        return RecordOutcome(dropped=tuple(sorted(goes)))
    kept = [each.revision for each in earlier if each.by_hand and each.revision not in goes]
    if not kept or present.by_hand:  # somebody wanted it to say this, and nothing else
        return RecordOutcome(deleted=True)
    later = {each.revision for each in earlier if each.revision >= kept[-1]}
    return RecordOutcome(back_to=kept[-1], dropped=tuple(sorted(goes | later)))


def portions_again(left: Sequence[ChangeSet], gone: Sequence[RecordText]) -> list[ChangeSet]:
    """Return what is to be made again: of each layer which turns, none where it is of everything.

    Args:
        left: for each record that went its layer, and which turns it was made of are left.
        gone: the records that went.
    """
    made = [
        ChangeSet(_AGAIN[each.layer], each.turns)
        for each in left
        if each.layer in _AGAIN and each.turns
    ]
    layers = [each.layer for each in gone if each.layer != "profile" or each.kind == "inferred"]
    return [*_joined(made), *(ChangeSet(each, ()) for each in _WHOLE if each in layers)]


def remade_of(left: Sequence[ChangeSet], gone: Sequence[RecordText]) -> list[str]:
    """Return, for each record that is made again, its layer."""
    whole = [each.layer for each in gone if each.layer in _WHOLE or each.layer == "summary"]
    stated = [each.layer for each in left if each.layer in _AGAIN and each.turns]
    inferred = [each for each in gone if each.layer == "profile" and each.kind == "inferred"]
    return [*stated, *(each for each in whole if each and each != "profile"),
            *("profile" for _ in inferred)]  # fmt: skip


def _joined(portions: Sequence[ChangeSet]) -> list[ChangeSet]:
    """Join the portions of a layer that share a turn: it is to be noted once."""
    joined: list[ChangeSet] = []
    for portion in portions:
        turns = set(portion.turns)
        sharing = [each for each in joined if each.layer == portion.layer and turns & {*each.turns}]
        joined = [each for each in joined if each not in sharing]
        turns.update(*(each.turns for each in sharing))
        joined.append(ChangeSet(portion.layer, tuple(sorted(turns))))
    return joined
