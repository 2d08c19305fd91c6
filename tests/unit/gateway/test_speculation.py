"""Speculation never changes results, in any order of events, on a virtual clock."""

import asyncio
import random

import pytest

from foremind.app.configuration import load_settings
from foremind.domain.settings.setting_definitions import Ahead
from foremind.runtime.metrics import Metrics
from foremind_eval.doubles.virtual_time import Deadlock, VirtualLoop
from foremind_models import find_model
from tests.unit.gateway.speculation import World, check, live

RUNS = 2_000  # with an effort of 1
_BATCHES = 4


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_prompts_are_the_same_as_without_speculation(batch: int, effort: int) -> None:
    """Random sessions: same contexts, nothing stored or sent early, no task leaked."""
    settings = load_settings(log_level="error")
    manifest = find_model(settings.embedding_model, settings.models_dir)
    metrics = Metrics()
    for seed in range(batch, effort * RUNS, _BATCHES):
        rng = random.Random(seed)
        mode: Ahead = rng.choice(("off", "prefill", "reply"))
        world = World(rng, manifest, settings, metrics, mode, eager=rng.random() < 0.8)
        loop = VirtualLoop()
        try:
            loop.run_until_complete(live(world))
            assert not asyncio.all_tasks(loop), "no task is leaked"
            check(world)
        except BaseException as error:
            error.add_note(f"seed {seed}, {mode}, eager {world.eager}")
            raise
        finally:
            loop.close()


def test_a_deadlock_is_an_error() -> None:
    """If every task waits for another, the virtual loop raises."""
    loop = VirtualLoop()
    with pytest.raises(Deadlock):
        loop.run_until_complete(asyncio.Event().wait())
    loop.close()
