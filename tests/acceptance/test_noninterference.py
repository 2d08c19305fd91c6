"""What a mind has not witnessed has no influence on what its model is given.

`pytest tests/acceptance/test_noninterference.py --effort 10` lives more worlds.
"""

import pytest

from tests.acceptance.two_lives import live_worlds
from tests.conftest import StartServer

GROUPS, WORLDS = 6, 50  # of each group, with an effort of 1


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", range(GROUPS))
async def test_who_has_not_witnessed_a_secret_cannot_tell_it_from_another(
    start: StartServer, effort: int, group: int
) -> None:
    """300 worlds: prompts and logs are the same to the last byte, whatever the secret is."""
    found = await live_worlds(range(group, WORLDS * GROUPS * effort, GROUPS), start)
    assert found.differing == []
    assert found.noticed > WORLDS / 10
    assert found.prompts > WORLDS / 2
