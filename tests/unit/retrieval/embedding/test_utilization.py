"""How busy the embedding thread is."""

import pytest

from foremind.retrieval.embedding.utilization import Utilization


def test_an_idle_thread_has_no_load() -> None:
    """Nor has one that worked long ago."""
    load = Utilization(0.003)
    assert load.share(5.0) == 0.0
    load.worked(5.0, 6.0, 1.0)
    assert load.share(60.0) < 0.01


def test_steady_work_for_half_the_time_is_half_a_load() -> None:
    """Within what single pieces of work move it."""
    load = Utilization(0.003)
    for number in range(2000):
        load.worked(number * 0.01, number * 0.01 + 0.005, 0.005)
    assert load.share(20.0) == pytest.approx(0.5, abs=0.02)
    assert load.usual_s == pytest.approx(0.005)


def test_a_thread_that_never_rests_is_fully_loaded() -> None:
    """And never more than that."""
    load = Utilization(0.003)
    for number in range(2000):
        load.worked(number * 0.01, number * 0.01 + 0.01, 0.01)
    assert load.share(20.0) == pytest.approx(1.0, abs=0.02)
