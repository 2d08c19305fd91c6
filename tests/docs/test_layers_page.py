"""The pages on layers list exactly the layers, steps and slots that exist, in the same order."""

import re
from typing import get_args

from foremind.background.step_definitions import STEPS
from foremind.domain.companion_rules import PROFILE_SLOTS
from foremind.domain.session_state import FlagName
from foremind.domain.settings.setting_definitions import LAYERS
from foremind.llm.prompt.token_budget import SHARES
from tests.conftest import ROOT

TEXT = "".join(
    (ROOT / "docs" / name).read_text("utf-8") for name in ("layers.md", "layers-reference.md")
)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading row."""
    _, _, below = TEXT.partition(f"{heading}\n")
    table = re.match(r"\|[-|]+\|\n((?:\|.*\n)+)", below)
    assert table, heading
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table[1].splitlines()]


def names(cell: str) -> list[str]:
    """Return the names in backquotes in a cell."""
    return re.findall(r"`(\w+)`", cell)


def test_every_layer_is_documented() -> None:
    """With its contents, when it is built, and when it is in a prompt."""
    layer_rows = rows("| layer | what it holds | made | in the prompt |")
    assert {name for name, *_ in layer_rows} == {f"`{layer}`" for layer in LAYERS}
    assert all(cell for row in layer_rows for cell in row)


def test_the_documented_steps_match_the_code() -> None:
    """Including whether they may call a model, and the steps that follow each."""
    step_rows = rows("| step | asks a model | does | followed by |")
    asks_model = {name.strip("`"): asks != "never" for name, asks, _, _ in step_rows}
    assert asks_model == {step.name: step.lane in ("model", "rating") for step in STEPS}
    followed = {name.strip("`"): tuple(names(then)) for name, _, _, then in step_rows}
    assert followed == {step.name: (*step.then, *step.later) for step in STEPS}


def test_the_order_in_which_unused_tokens_are_shared_is_documented() -> None:
    """By priority."""
    match = re.search(r"goes round by priority:((?:\s+`\w+`[,.])+)", TEXT)
    assert match
    assert names(match[1]) == list(SHARES)


def test_every_profile_slot_is_documented() -> None:
    """Listed by kind."""
    slots = [
        (name, kind.strip("`")) for kind, cell in rows("| kind | slots |") for name in names(cell)
    ]
    assert slots == [(name, slot.kind) for name, slot in PROFILE_SLOTS.items()]


def test_the_names_of_flags_are_as_described() -> None:
    """By the pattern that the page says in words."""
    (pattern,) = (meta.pattern for meta in get_args(FlagName)[1:])
    assert pattern == "^[a-z][a-z0-9_.-]{0,63}$"
    said = " ".join(TEXT.split())
    assert (
        "at most 64 characters: a lower-case letter first, then lower-case letters, digits" in said
    )
    (example,) = re.findall(r"`_`, `\.` and `-`, such as `([^`]+)`", said)
    assert re.match(pattern, example)
