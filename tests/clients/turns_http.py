"""What the drivers of turns have in common: one HTTP request, and telling what happens."""

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer: its status, its headers in small letters, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(method: str, url: str, headers: Mapping[str, str], body: str | None) -> Answered:
    """Make a request.

    Raises:
        OSError: no answer came.
    """
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, path, None if body is None else body.encode(), dict(headers))
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return Answered(answer.status, told, answer.read())
    except http.client.HTTPException as error:
        raise OSError("no answer") from error
    finally:
        connection.close()


def tell(**event: Any) -> None:
    """Print an event as a JSON line."""
    print(json.dumps(event), flush=True)
