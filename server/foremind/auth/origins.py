"""Which pages may talk to this server, and under which names it may be asked. Pure."""

import re
from urllib.parse import urlsplit

from foremind.domain.settings import Settings, is_loopback

_OWN_SITES = frozenset({None, "same-origin", "none"})  # None: a program, or an old browser
# A name or an address, and a port; urlsplit would read "[::1].evil.example" as the address.
_HOST = re.compile(r"(?:\[([\da-fA-F:.]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
_SAFE_METHODS = frozenset({"GET", "HEAD"})


def host_allowed(host: str | None, settings: Settings) -> bool:
    """Tell whether a request may be made to this server under the name in `Host`.

    In open mode it must be a loopback name or address: a foreign name that points here (DNS
    rebinding) makes a foreign page look like this server's own.
    """
    if not settings.open_mode:
        return True
    return _is_own(host or "")


def origin_allowed(origin: str | None, host: str | None, settings: Settings) -> bool:
    """Tell whether a page from `origin` may connect to this server, reached as `host`.

    A program sends no origin. A page must come from this server or be listed. In open mode its
    host must also be a loopback name: a foreign name that points here (DNS rebinding) is not.
    """
    if origin is None or origin in settings.allowed_origins:
        return True
    try:
        page = urlsplit(origin).netloc
    except ValueError:
        return False
    return page == host and (_is_own(page) or not settings.open_mode)


def page_may_ask(
    method: str,
    path: str,
    *,
    origin: str | None,
    host: str | None,
    site: str | None,
    settings: Settings,
) -> bool:
    """Tell whether an HTTP request comes from a page that may make it, or from a program.

    Args:
        site: `Sec-Fetch-Site`, which only a browser can set. It never lets anything in; it stops a
            page of another scheme on the same host, and requests for which a browser sends no
            `Origin`, such as those of images, for anything but the files of the page.
    """
    if origin in settings.allowed_origins:
        return True
    if origin is None and method in _SAFE_METHODS and not path.startswith("/v1/"):
        return True
    return origin_allowed(origin, host, settings) and site in _OWN_SITES


def _is_own(host: str) -> bool:
    """Tell whether a host, perhaps with a port, can only be this machine."""
    parts = _HOST.fullmatch(host)
    return parts is not None and is_loopback(parts[1] or parts[2])
