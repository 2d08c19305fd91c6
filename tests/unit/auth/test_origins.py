"""Which hosts and web origins are allowed."""

import pytest

from foremind.app.configuration import load_settings
from foremind.auth.origins import host_allowed, origin_allowed, request_origin_allowed

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
        ("http://[::1].evil.example", "[::1].evil.example", False),
        ("http://ana@127.0.0.1:8770", "ana@127.0.0.1:8770", False),
        ("http://[::1]:8770", "[::1]:8770", True),
    ],
)
def test_foreign_pages_may_not_connect(origin: str | None, host: str, allowed: bool) -> None:
    """Nor those whose name resolves to this machine (DNS rebinding)."""
    assert origin_allowed(origin, host, OPEN) is allowed


def test_listed_origins_may_connect() -> None:
    """For example a game's own site."""
    listed = load_settings(allowed_origins=("https://game.example",))
    assert origin_allowed("https://game.example", "127.0.0.1:8770", listed)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8770", True),
        ("127.0.0.2", True),
        ("localhost", True),
        ("[::1]:8770", True),
        ("evil.example:8770", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("[::1].evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("evil.example:80:127.0.0.1", False),
        ("10.0.0.1", False),
        ("", False),
        (None, False),
    ],
)
def test_in_open_mode_the_host_must_be_loopback(host: str | None, allowed: bool) -> None:
    """With tokens, any host is allowed."""
    assert host_allowed(host, OPEN) is allowed
    assert host_allowed(host, load_settings(auth_secret="x" * 32))


@pytest.mark.parametrize("site", [None, "none", "same-origin", "same-site", "cross-site", "?"])
@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:8770", "null", "https://game.example"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/relationships"])
def test_sec_fetch_site_only_restricts(
    site: str | None, origin: str | None, method: str, path: str
) -> None:
    """It never allows a page that its origin excludes."""

    def request_allowed(*allowed: str) -> bool:
        settings = load_settings(allowed_origins=allowed)
        return request_origin_allowed(
            method, path, origin=origin, host="127.0.0.1:8770", site=site, settings=settings
        )

    same_origin = site in (None, "none", "same-origin")
    if origin is None:
        page_read = method in ("GET", "HEAD") and not path.startswith("/v1/")
        assert request_allowed() is (same_origin or page_read)
    else:
        assert request_allowed() is (same_origin and origin == "http://127.0.0.1:8770")
        assert origin == "null" or request_allowed(origin)  # "null" cannot be listed
