"""Recalled memories as clients see them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from foremind.domain.memory import Recalled
from foremind.gateway.event_builders import memory_view


def test_an_age_is_counted_in_the_players_days_and_told_in_the_players_language() -> None:
    """What is still today in UTC was yesterday in Tokyo; the moment itself stays in UTC."""
    said_at = datetime(2026, 5, 20, 13, tzinfo=UTC)
    memory = Recalled(
        1, "My dog is Bello", "user", "conversation", 0.5, said_at, False, 0.5, 0.5, 0.5, 0.5
    )
    now = datetime(2026, 5, 20, 23, tzinfo=UTC)
    tokyo = now.astimezone(ZoneInfo("Asia/Tokyo"))
    assert memory_view(memory, now, "de").age == "vor 10 Stunden"
    assert memory_view(memory, tokyo, "ja").age == "昨日"
    assert memory_view(memory, tokyo, "en").age == "yesterday"
    assert memory_view(memory, tokyo, "ja").created_at == said_at
