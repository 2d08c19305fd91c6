"""Which pages may talk to this server. Pure."""

from urllib.parse import urlsplit

from foremind.settings import Settings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def origin_allowed(origin: str | None, host: str | None, settings: Settings) -> bool:
    """Tell whether a page from `origin` may connect to this server, reached as `host`.

    A program sends no origin. A page must come from this server or be listed. In open mode its
    host must also be a loopback name: a foreign name that points here (DNS rebinding) is not.
    """
    if origin is None or origin in settings.allowed_origins:
        return True
    try:
        page = urlsplit(origin)
        if settings.open_mode and page.hostname not in LOOPBACK:
            return False
    except ValueError:
        return False
    return page.netloc == host
