"""What takes bytes from strangers. A target returns, or raises what it says it raises."""

import contextlib
import io
from collections.abc import Callable
from datetime import UTC, datetime

import jwt
import msgspec
from starlette.requests import Request

from foremind.companions import SignificanceRules
from foremind.errors import NOT_JSON, InvalidMessage, NotAuthenticated
from foremind.gateway.decode import decode, event_id_of
from foremind.http.admin import CompanionBody, Revocation
from foremind.http.callers import body_of
from foremind.identity.keys import KeyRing
from foremind.identity.tokens import read_token
from foremind.layers.reading import MEDIA_TYPES, chunks_of, pieces_of, text_of
from foremind.memory.asked import read_draft
from foremind.memory.facts import facts_in
from foremind.memory.gate import worth_searching
from foremind.memory.significance import judge
from foremind.storage.transfer import Export

_NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
_SECRET = "thirty-two bytes that are no secret"
_KEYS = KeyRing(_SECRET, None)
_MOST_CHARS = 4000
_BODIES = (Export, CompanionBody, Revocation, dict[str, str])


def frame(data: bytes) -> None:
    """A text frame: what the socket layer passes on is valid UTF-8."""
    text = data.decode("utf-8", "ignore")
    event_id_of(text)
    with contextlib.suppress(InvalidMessage):
        decode(text, _MOST_CHARS)


def token(data: bytes) -> None:
    """A token of any form."""
    with contextlib.suppress(NotAuthenticated):
        read_token(data.decode("utf-8", "replace"), _KEYS, None, _NOW.timestamp())


def claims(data: bytes) -> None:
    """Any claims, well signed."""
    try:
        read = msgspec.json.decode(data, type=dict[str, object])
        signed = jwt.encode(read, _SECRET)
    except (*NOT_JSON, TypeError, ValueError):
        return
    with contextlib.suppress(NotAuthenticated):
        read_token(signed, _KEYS, None, _NOW.timestamp())


def body(data: bytes) -> None:
    """The body of a request, as every shape there is."""
    for shape in _BODIES:

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": data, "more_body": False}

        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        with contextlib.suppress(InvalidMessage, StopIteration):
            body_of(request, shape).send(None)


def draft(data: bytes) -> None:
    """What a player types: searched with, judged, and read for facts."""
    text = data.decode("utf-8", "ignore")[:_MOST_CHARS]
    read_draft(text, _NOW)
    worth_searching(text, -1.0)
    judge(text, 0.0, SignificanceRules())
    facts_in(text)


def document(data: bytes) -> None:
    """A document of any type; the first byte says which."""
    kind = MEDIA_TYPES[data[0] % len(MEDIA_TYPES)] if data else MEDIA_TYPES[0]
    with contextlib.suppress(InvalidMessage), contextlib.redirect_stderr(io.StringIO()):
        for chunk in chunks_of(text_of(data[1:], kind)):
            pieces_of(chunk)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (frame, token, claims, body, draft, document)
}
