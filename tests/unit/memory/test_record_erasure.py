"""What becomes of records when something that they hold, or were made of, is forgotten."""

from foremind.domain.erasure import RecordText
from foremind.domain.record import RecordLayer
from foremind.domain.relationship import ChangeSet
from foremind.memory.record_erasure import portions_again, remade_of


def gone(layer: RecordLayer, kind: str = "") -> RecordText:
    """A record that went."""
    return RecordText(1, 0, "rules", "", "", "", layer, kind)


def test_turns_that_a_layer_shares_are_made_again_together() -> None:
    """Else what stands in both portions would be noted twice; questions come with episodes."""
    left = [
        ChangeSet("scratchpad", (3, 4)),
        ChangeSet("episodes", (3, 4)),
        ChangeSet("scratchpad", (7,)),
        ChangeSet("scratchpad", (4, 5)),
        ChangeSet("questions", (4, 9)),
    ]
    again = portions_again(left, [gone("scratchpad"), gone("episodes"), gone("questions")])
    assert again == [
        ChangeSet("scratchpad", (7,)),
        ChangeSet("scratchpad", (3, 4, 5)),
        ChangeSet("episodes", (3, 4, 9)),
    ]


def test_what_is_made_of_everything_names_no_turns() -> None:
    """Of the profile that is what was inferred; of topics and the summary nothing is noted."""
    went = [gone("hot"), gone("profile", "inferred"), gone("topics"), gone("summary")]
    assert portions_again([], went) == [ChangeSet("profile", ()), ChangeSet("hot", ())]
    assert portions_again([], [gone("profile", "stated")]) == []


def test_a_receipt_names_what_is_made_again() -> None:
    """Not what has nothing left to be made of."""
    left = [
        ChangeSet("scratchpad", (3,)),
        ChangeSet("scratchpad", ()),
        ChangeSet("questions", (4,)),
    ]
    went = [gone("summary"), gone("profile", "inferred"), gone("topics")]
    assert sorted(remade_of(left, went)) == ["profile", "questions", "scratchpad", "summary"]
