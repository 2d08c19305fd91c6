"""What docs/layers.md lists of the layers is what there is, in the same order."""

import re

from foremind.background.steps import STEPS
from foremind.domain.companion import PROFILE_SLOTS
from foremind.domain.settings import LAYERS
from foremind.llm.prompt.token_budget import SHARES
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "layers.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The rows of the table below a row of headings, as the cells' texts."""
    _, _, below = TEXT.partition(f"{heading}\n")
    table = re.match(r"\|[-|]+\|\n((?:\|.*\n)+)", below)
    assert table, heading
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table[1].splitlines()]


def names(cell: str) -> list[str]:
    """What is named in a cell."""
    return re.findall(r"`(\w+)`", cell)


def test_every_layer_is_there() -> None:
    """With what it holds, when it is made, and when it stands in a prompt."""
    told = rows("| layer | what it holds | made | in the prompt |")
    assert {name for name, *_ in told} == {f"`{each}`" for each in LAYERS}
    assert all(cell for row in told for cell in row)


def test_the_steps_are_those_that_are_done() -> None:
    """Whether they may ask a model, and what follows each."""
    told = rows("| step | asks a model | does | followed by |")
    lanes = {name.strip("`"): "rules" if asks == "never" else "model" for name, asks, _, _ in told}
    assert lanes == {each.name: each.lane for each in STEPS}
    followed = {name.strip("`"): tuple(names(then)) for name, _, _, then in told}
    assert followed == {each.name: (*each.then, *each.later) for each in STEPS}


def test_what_is_left_over_goes_round_in_this_order() -> None:
    """By priority."""
    match = re.search(r"goes round by priority:((?:\s+`\w+`[,.])+)", TEXT)
    assert match
    assert names(match[1]) == list(SHARES)


def test_the_slots_of_a_profile_are_the_usual_ones() -> None:
    """Each below its kind."""
    told = [(kind.strip("`"), names(slots)) for kind, slots in rows("| kind | slots |")]
    slots = [(name, kind) for kind, found in told for name in found]
    assert slots == [(name, each.kind) for name, each in PROFILE_SLOTS.items()]
