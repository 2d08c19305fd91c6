"""Memory decay."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from foremind.app.configuration import load_settings
from foremind.domain.policy import policy_for
from foremind.domain.settings.setting_definitions import Decay
from foremind.domain.settings.settings import CompanionSettings
from foremind.retrieval.ranking import recency

NOW = datetime(2026, 5, 20, tzinfo=UTC)
POLICY = policy_for(CompanionSettings(), load_settings()).recall


def fresh(decay: Decay, days: float, significance: float = 0.5, used: float | None = None) -> float:
    """The recency of a memory created and last used so many days ago."""
    policy = dataclasses.replace(POLICY, decay=decay)
    used_at = None if used is None else NOW - timedelta(days=used)
    return recency(policy, significance, NOW - timedelta(days=days), used_at, NOW)


def test_each_mode_has_its_published_rate() -> None:
    """Half after 180 days; 0.995 per hour, added or multiplied; constant in the window."""
    assert fresh("half_life", 180) == pytest.approx(0.5)
    assert fresh("hourly", 1) == pytest.approx(0.995**24)
    assert fresh("product", 1) == pytest.approx(0.995**24)
    assert fresh("product", 30, used=1) == pytest.approx(0.995**24)
    assert fresh("window", 80) == 1.0


def test_use_refreshes_a_memory() -> None:
    """A memory used now is as recent as a new one."""
    assert fresh("half_life", 400, used=0) == 1.0


def test_permanent_memories_do_not_decay() -> None:
    """At or above the permanent significance."""
    assert fresh("hourly", 4000, significance=0.85) == 1.0


def test_a_clock_that_was_set_back_gives_no_recency_above_one() -> None:
    """A memory from the future is as recent as one from now."""
    assert fresh("half_life", -3) == 1.0


def test_only_the_window_has_a_maximum_age() -> None:
    """The other modes recall memories of any age."""
    server = load_settings()
    assert POLICY.max_age_days == 90
    other_modes: tuple[Decay, ...] = ("half_life", "hourly", "product")
    for decay in other_modes:
        assert policy_for(CompanionSettings(memory_decay=decay), server).recall.max_age_days is None
