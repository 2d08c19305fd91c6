"""Who answers in a scene."""

import pytest

from foremind.domain.world import TurnOrder
from foremind.worlds.turn_order import answering

NAMES = {"zoe": "Zoë", "jon": "Jón Old", "mara": "Mara O'Brien", "mari": "真理"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Zoe, are you there?", ["zoe"]),
        ("ZOË, are you there?", ["zoe"]),
        ("What does Jon say, and Zoë?", ["jon", "zoe"]),
        ("Mara O'Brien!", ["mara"]),
        ("真理、元気?", ["mari"]),
    ],
)
def test_whoever_is_named_answers(text: str, named: list[str]) -> None:
    """In the order of the names, however they are written."""
    assert answering(TurnOrder(replies=3), text, (), NAMES, "", "seed") == named
