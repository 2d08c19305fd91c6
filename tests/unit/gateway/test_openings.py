"""Opening a session is as if it took no time: limits, forgetting, revoking and retiring hold."""

import asyncio
import random
from collections import Counter

import pytest

from foremind.domain.settings import load_settings
from foremind.runtime.metrics import Metrics
from foremind.testing.virtual_time import VirtualLoop
from tests.unit.auth.test_access_tokens import SECRET
from tests.unit.gateway.openings import World, live

RUNS = 800
_BATCHES = 4


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_whatever_happens_while_sessions_open_they_are_as_if_it_happened_before(batch: int) -> None:
    """Eight hundred crowds: no limit passed, nothing forgotten kept, nobody let in who may not."""
    settings = load_settings(
        log_level="error", auth_secret=SECRET, max_sessions=5, max_sessions_per_user=3
    )
    metrics, outcomes = Metrics(), Counter[str]()
    for seed in range(batch * RUNS // _BATCHES, (batch + 1) * RUNS // _BATCHES):
        world = World(random.Random(seed), settings, metrics)
        loop = VirtualLoop()
        try:
            loop.run_until_complete(live(world))
            assert not asyncio.all_tasks(loop), "no task is left behind"
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            loop.close()
        outcomes += world.outcomes
    expected = {"opened", "overloaded", "not_authenticated", "storage_unavailable", "not_found"}
    assert expected | {"draining"} <= set(outcomes), "every way that it can end was taken"
