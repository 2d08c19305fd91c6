"""The phases of a session, and what leads from one to another."""

from typing import Literal

import pytest

from foremind.domain.errors import Interrupted
from foremind.gateway.session import SessionPhase, phase_after

DETACHED, CONNECTED, ENDED = SessionPhase


@pytest.mark.parametrize(
    ("phase", "happening", "after"),
    [
        (DETACHED, "attach", CONNECTED),
        (CONNECTED, "attach", CONNECTED),  # a newer connection replaces it
        (CONNECTED, "detach", DETACHED),
        (DETACHED, "end", ENDED),
        (CONNECTED, "end", ENDED),
        (ENDED, "end", ENDED),
        (ENDED, "detach", ENDED),  # its connection closes afterwards
    ],
)
def test_a_session_goes_through_its_phases(
    phase: SessionPhase, happening: Literal["attach", "detach", "end"], after: SessionPhase
) -> None:
    assert phase_after(phase, happening) is after


def test_nobody_is_attached_to_a_session_that_has_ended() -> None:
    with pytest.raises(Interrupted):
        phase_after(ENDED, "attach")
