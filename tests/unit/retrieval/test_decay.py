"""How memories fade."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from foremind.domain.companion import CompanionSettings
from foremind.domain.policy import policy_for
from foremind.domain.settings import Decay, load_settings
from foremind.retrieval.decay import recency

NOW = datetime(2026, 5, 20, tzinfo=UTC)
POLICY = policy_for(CompanionSettings(), load_settings()).recall


def fresh(decay: Decay, days: float, significance: float = 0.5, used: float | None = None) -> float:
    """The recency of a memory said and used so many days ago."""
    policy = dataclasses.replace(POLICY, decay=decay)
    used_at = None if used is None else NOW - timedelta(days=used)
    return recency(policy, significance, NOW - timedelta(days=days), used_at, NOW)


def test_each_way_has_its_published_rate() -> None:
    """Half after 180 days; 0.995 an hour, added or multiplied; none in the window."""
    assert fresh("half_life", 180) == pytest.approx(0.5)
    assert fresh("hourly", 1) == pytest.approx(0.995**24)
    assert fresh("product", 1) == pytest.approx(0.995**24)
    assert fresh("product", 30, used=1) == pytest.approx(0.995**24)
    assert fresh("window", 80) == 1.0


def test_what_was_used_is_fresh_again() -> None:
    """Recalled and spoken of counts like said anew."""
    assert fresh("half_life", 400, used=0) == 1.0


def test_what_matters_most_does_not_fade() -> None:
    """From the permanent significance on."""
    assert fresh("hourly", 4000, significance=0.85) == 1.0


def test_a_clock_that_was_set_back_makes_nothing_fresher_than_now() -> None:
    """A memory of the future is as fresh as one of this moment."""
    assert fresh("half_life", -3) == 1.0


def test_only_the_window_has_an_edge() -> None:
    """The other ways recall at any age."""
    server = load_settings()
    assert POLICY.max_age_days == 90
    others: tuple[Decay, ...] = ("half_life", "hourly", "product")
    for decay in others:
        assert policy_for(CompanionSettings(memory_decay=decay), server).recall.max_age_days is None
