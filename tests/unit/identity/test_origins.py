"""Which pages may connect."""

import pytest

from foremind.identity.origins import origin_allowed
from foremind.settings import load_settings

OPEN = load_settings()


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "127.0.0.1:8770", True),
        ("http://127.0.0.1:8770", "127.0.0.1:8770", True),
        ("http://localhost:8770", "localhost:8770", True),
        ("http://localhost:9999", "localhost:8770", False),
        ("https://evil.example", "127.0.0.1:8770", False),
        ("http://evil.example:8770", "evil.example:8770", False),
        ("http://[evil", "127.0.0.1:8770", False),
        ("null", "127.0.0.1:8770", False),
    ],
)
def test_foreign_pages_stay_outside(origin: str | None, host: str, allowed: bool) -> None:
    """Also those whose name was made to point here."""
    assert origin_allowed(origin, host, OPEN) is allowed


def test_listed_origins_may_connect() -> None:
    """A game's own site."""
    listed = load_settings(allowed_origins=("https://game.example",))
    assert origin_allowed("https://game.example", "127.0.0.1:8770", listed)
