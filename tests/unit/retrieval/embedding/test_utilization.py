"""Utilization of the embedding thread."""

import pytest

from foremind.retrieval.embedding.service import Utilization


def test_an_idle_thread_has_no_utilization() -> None:
    """Nor has one that worked long ago."""
    load = Utilization(0.003)
    assert load.share(5.0) == 0.0
    load.record(5.0, 6.0, 1.0)
    assert load.share(60.0) < 0.01


def test_working_half_of_the_time_is_a_utilization_of_half() -> None:
    """Apart from the effect of a single piece of work."""
    load = Utilization(0.003)
    for number in range(2000):
        load.record(number * 0.01, number * 0.01 + 0.005, 0.005)
    assert load.share(20.0) == pytest.approx(0.5, abs=0.02)
    assert load.typical_cpu_s == pytest.approx(0.005)


def test_a_thread_that_is_never_idle_is_fully_utilized() -> None:
    """And never more than that."""
    load = Utilization(0.003)
    for number in range(2000):
        load.record(number * 0.01, number * 0.01 + 0.01, 0.01)
    assert load.share(20.0) == pytest.approx(1.0, abs=0.02)
