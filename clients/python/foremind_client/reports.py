"""Events of a world, reported by one HTTP request."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException

from foremind_client.socket_client import Event

_TIMEOUT_S = 30.0  # for an answer

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # as the socket: no proxy


class Refused(Exception):
    """The server refused for good; `error` is its error object."""

    def __init__(self, error: Event) -> None:
        super().__init__(error["message"])
        self.error = error


class Unreported(ConnectionError):
    """The server could not store the events now; it may in `retry_after_s` seconds."""

    def __init__(self, error: Event) -> None:
        super().__init__(error["message"])
        self.retry_after_s: float = error.get("retry_after_s") or 0.0


def post_events(url: str, world: str, token: str | None, events: Sequence[Event]) -> list[Event]:
    """Report events once; return what the server says of each. Blocks.

    Args:
        url: of the socket.

    Raises:
        Refused: the server refused them for good.
        Unreported: it could not store them now.
        ConnectionError: no answer of the server came.
    """
    parts = urllib.parse.urlsplit(url)
    scheme = "https" if parts.scheme == "wss" else "http"
    path = f"/v1/worlds/{urllib.parse.quote(world, safe='')}/events"
    target = urllib.parse.urlunsplit((scheme, parts.netloc, path, "", ""))
    headers = {"content-type": "application/json"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    body = json.dumps({"events": list(events)}).encode()
    request = urllib.request.Request(target, body, headers)  # noqa: S310 - http or https
    try:
        with _opener.open(request, timeout=_TIMEOUT_S) as answer:
            stored: list[Event] = json.load(answer)["events"]
            return stored
    except urllib.error.HTTPError as refusal:
        raise _failure(refusal) from None
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise ConnectionError(f"no answer: {error}") from error


def _failure(refusal: urllib.error.HTTPError) -> Exception:
    try:
        error: Event = json.load(refusal)["error"]
        return Unreported(error) if error["retryable"] else Refused(error)
    except (OSError, HTTPException, ValueError, LookupError, TypeError):  # another program's
        return ConnectionError(f"no answer of Foremind's: {refusal}")
