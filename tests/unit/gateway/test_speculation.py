"""Speculation is never wrong: whatever happens in whatever order, on a virtual clock."""

import asyncio
import random

import pytest

from foremind.domain.settings import Ahead, load_settings
from foremind.retrieval.embedding.model_registry import find_model
from foremind.runtime.metrics import Metrics
from foremind.testing.virtual_time import Deadlock, VirtualLoop
from tests.unit.gateway.speculation import World, check, live

RUNS = 10_000
_BATCHES = 8


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_the_model_is_given_what_it_would_be_given_without_speculation(batch: int) -> None:
    """Ten thousand sessions: the same context, nothing written, nothing heard, no task left."""
    settings = load_settings(log_level="error")
    manifest = find_model(settings.embedding_model, settings.models_dir)
    metrics = Metrics()
    for seed in range(batch * RUNS // _BATCHES, (batch + 1) * RUNS // _BATCHES):
        draw = random.Random(seed)
        ahead: Ahead = draw.choice(("off", "prefill", "reply"))
        world = World(draw, manifest, settings, metrics, ahead, eager=draw.random() < 0.8)
        loop = VirtualLoop()
        try:
            loop.run_until_complete(live(world))
            assert not asyncio.all_tasks(loop), "no task is left behind"
            check(world)
        except BaseException as error:
            error.add_note(f"seed {seed}, {ahead}, eager {world.eager}")
            raise
        finally:
            loop.close()


def test_a_deadlock_is_an_error() -> None:
    """Where everybody waits for somebody else, the virtual loop says so."""
    loop = VirtualLoop()
    with pytest.raises(Deadlock):
        loop.run_until_complete(asyncio.Event().wait())
    loop.close()
