"""Texts of front ends are read in time that grows with their length alone."""

import time
from contextlib import suppress

import pytest

from foremind.api.front_end_requests import Said, read_messages
from foremind.domain.errors import InvalidMessage
from foremind.domain.turn_request import EarlierTurn
from foremind.gateway.speaker_labels import without_labels

_CHARS = 1_000_000
_MAX_S = 10.0  # of a processor; what grows with the square of the length takes hours


@pytest.mark.parametrize(
    "part",
    [
        "<context>", "<context></context>query:\n", "<user_query>", "\n", " ", "#", ". ", ":  ",
        "give ", "User: x\ngive\n", "\n title :", "[reply ", "reply as \n\n", "Wren: x\n\n",
        "[continue ", "Attached document(s):\n```\n",
    ],
)  # fmt: skip
def test_a_text_of_any_form_is_read_soon(part: str) -> None:
    """Also one that is made to be read for long."""
    text = part * (_CHARS // len(part)) + "x"
    began = time.process_time()
    for said in ([Said("user", text)], [Said("user", "Hi"), Said("companion", text)]):
        with suppress(InvalidMessage):
            read_messages(said)
    with suppress(InvalidMessage):
        without_labels([EarlierTurn("user", text)], {"Wren"}, {"Ana"})
    assert time.process_time() - began < _MAX_S
