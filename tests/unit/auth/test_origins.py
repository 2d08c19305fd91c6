"""Which pages may connect."""

import pytest

from foremind.auth.origins import host_allowed, origin_allowed, page_may_ask
from foremind.domain.settings import load_settings

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
def test_foreign_pages_stay_outside(origin: str | None, host: str, allowed: bool) -> None:
    """Also those whose name was made to point here."""
    assert origin_allowed(origin, host, OPEN) is allowed


def test_listed_origins_may_connect() -> None:
    """A game's own site."""
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
def test_an_open_server_is_asked_under_its_own_names_only(host: str | None, allowed: bool) -> None:
    """A name that somebody made to point here is not one; with tokens, any will do."""
    assert host_allowed(host, OPEN) is allowed
    assert host_allowed(host, load_settings(auth_secret="x" * 32))


@pytest.mark.parametrize("site", [None, "none", "same-origin", "same-site", "cross-site", "?"])
@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:8770", "null", "https://game.example"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/relationships"])
def test_what_the_browser_says_only_narrows(
    site: str | None, origin: str | None, method: str, path: str
) -> None:
    """Whatever it says of the site, no page gets in that its origin keeps out."""

    def asked(*allowed: str) -> bool:
        settings = load_settings(allowed_origins=allowed)
        return page_may_ask(
            method, path, origin=origin, host="127.0.0.1:8770", site=site, settings=settings
        )

    own = site in (None, "none", "same-origin")
    if origin is None:
        read = method in ("GET", "HEAD") and not path.startswith("/v1/")
        assert asked() is (own or read)
    else:
        assert asked() is (own and origin == "http://127.0.0.1:8770")
        assert origin == "null" or asked(origin)  # which nobody can list: it is anybody's
