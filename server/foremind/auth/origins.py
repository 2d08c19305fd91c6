"""Which `Host` names and web origins the server accepts. Pure."""

import re
from urllib.parse import urlsplit

from foremind.domain.settings.settings import Settings, is_loopback

_SAME_ORIGIN_SITES = frozenset({None, "same-origin", "none"})  # None: not a browser, or an old one
# A name or address with an optional port; urlsplit would parse "[::1].evil.example" as "::1".
_HOST = re.compile(r"(?:\[([\da-fA-F:.]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
_SAFE_METHODS = frozenset({"GET", "HEAD"})


def host_allowed(host: str | None, settings: Settings) -> bool:
    """Tell whether the server accepts requests with this `Host` header.

    In open mode it must be a loopback name or address: with a foreign name that resolves to this
    machine (DNS rebinding), a foreign page would count as same-origin.
    """
    if not settings.open_mode:
        return True
    return _is_loopback_host(host or "")


def origin_allowed(origin: str | None, host: str | None, settings: Settings) -> bool:
    """Tell whether a page from `origin` may connect to this server, addressed as `host`.

    Clients other than browsers send no origin. A page must be same-origin or listed in
    `allowed_origins`; in open mode a same-origin host must also be a loopback name, because of DNS
    rebinding.
    """
    if origin is None or origin in settings.allowed_origins:
        return True
    try:
        page = urlsplit(origin).netloc
    except ValueError:
        return False
    return page == host and (_is_loopback_host(page) or not settings.open_mode)


def request_origin_allowed(
    method: str,
    path: str,
    *,
    origin: str | None,
    host: str | None,
    site: str | None,
    settings: Settings,
) -> bool:
    """Tell whether an HTTP request comes from an allowed page, or not from a browser at all.

    Args:
        site: the `Sec-Fetch-Site` header, which page scripts cannot set. It only ever restricts: it
            blocks pages of another scheme on the same host, and cross-site requests that browsers
            send without `Origin`, such as those for images, except reads outside `/v1/`.
    """
    if origin in settings.allowed_origins:
        return True
    if origin is None and method in _SAFE_METHODS and not path.startswith("/v1/"):
        return True
    return origin_allowed(origin, host, settings) and site in _SAME_ORIGIN_SITES


def _is_loopback_host(host: str) -> bool:
    """Tell whether a host, with or without a port, is a loopback name or address."""
    match = _HOST.fullmatch(host)
    return match is not None and is_loopback(match[1] or match[2])
