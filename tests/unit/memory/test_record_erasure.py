"""What becomes of records when something they contain or derive from is erased."""

from foremind.domain.erasure_texts import RecordText
from foremind.domain.record import RecordLayer
from foremind.domain.relationship import ChangeSet
from foremind.memory.erasure.records import change_sets_to_regenerate, regenerated_layers


def erased(layer: RecordLayer, kind: str = "") -> RecordText:
    """An erased record."""
    return RecordText(1, 0, "rules", "", "", "", layer, kind)


def test_overlapping_turns_of_a_layer_are_processed_together() -> None:
    """Otherwise shared turns would be noted twice; questions are written with episodes."""
    remaining = [
        ChangeSet("scratchpad", (3, 4)),
        ChangeSet("episodes", (3, 4)),
        ChangeSet("scratchpad", (7,)),
        ChangeSet("scratchpad", (4, 5)),
        ChangeSet("questions", (4, 9)),
    ]
    records = [erased("scratchpad"), erased("episodes"), erased("questions")]
    assert change_sets_to_regenerate(remaining, records) == [
        ChangeSet("scratchpad", (7,)),
        ChangeSet("scratchpad", (3, 4, 5)),
        ChangeSet("episodes", (3, 4, 9)),
    ]


def test_layers_regenerated_as_a_whole_name_no_turns() -> None:
    """Of the profile only what is inferred is; topics and the summary need no change set."""
    records = [erased("hot"), erased("profile", "inferred"), erased("topics"), erased("summary")]
    assert change_sets_to_regenerate([], records) == [
        ChangeSet("profile", ()),
        ChangeSet("hot", ()),
    ]
    assert change_sets_to_regenerate([], [erased("profile", "stated")]) == []


def test_a_receipt_names_the_regenerated_layers() -> None:
    """But not those without remaining source turns."""
    remaining = [
        ChangeSet("scratchpad", (3,)),
        ChangeSet("scratchpad", ()),
        ChangeSet("questions", (4,)),
    ]
    layers = regenerated_layers(
        remaining, [erased("summary"), erased("profile", "inferred"), erased("topics")]
    )
    assert sorted(layers) == ["profile", "questions", "scratchpad", "summary"]
