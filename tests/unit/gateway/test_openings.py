"""Opening a session is atomic: limits, erasure, revocation and retirement apply throughout."""

import asyncio
import random
from collections import Counter

import pytest

from foremind.app.configuration import load_settings
from foremind.runtime.metrics import Metrics
from foremind_eval.doubles.virtual_time import VirtualLoop
from tests.unit.auth.test_access_tokens import SECRET
from tests.unit.gateway.openings import World, live

RUNS = 800
_BATCHES = 4


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_concurrent_changes_apply_to_sessions_being_opened(batch: int) -> None:
    """Eight hundred runs: limits hold, nothing erased is kept, no unauthorized session opens."""
    settings = load_settings(
        log_level="error", auth_secret=SECRET, max_sessions=5, max_sessions_per_user=3
    )
    metrics, outcomes = Metrics(), Counter[str]()
    for seed in range(batch * RUNS // _BATCHES, (batch + 1) * RUNS // _BATCHES):
        world = World(random.Random(seed), settings, metrics)
        loop = VirtualLoop()
        try:
            loop.run_until_complete(live(world))
            assert not asyncio.all_tasks(loop), "no task is leaked"
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            loop.close()
        outcomes += world.outcomes
    expected = {"opened", "overloaded", "not_authenticated", "storage_unavailable", "not_found"}
    assert expected | {"draining"} <= set(outcomes), "every outcome occurred"
