"""What becomes of a record when something that it holds, or was made of, is forgotten. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foremind.storage.forgetting import RecordText


@dataclass(frozen=True, slots=True)
class Fate:
    """A record is deleted, kept as it is, or taken `back_to` a revision; `dropped` states go."""

    deleted: bool = False
    back_to: int | None = None
    dropped: tuple[int, ...] = ()

    @property
    def goes(self) -> bool:
        """Whether its present state goes."""
        return self.deleted or self.back_to is not None


def fate_of(states: Sequence[RecordText], holding: Collection[int], *, made_of_it: bool) -> Fate:
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
        return Fate(dropped=tuple(sorted(goes)))
    kept = [each.revision for each in earlier if each.by_hand and each.revision not in goes]
    if not kept or present.by_hand:  # somebody wanted it to say this, and nothing else
        return Fate(deleted=True)
    later = {each.revision for each in earlier if each.revision >= kept[-1]}
    return Fate(back_to=kept[-1], dropped=tuple(sorted(goes | later)))
