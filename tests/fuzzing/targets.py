"""What takes bytes from strangers. A target returns, or raises what it says it raises."""

import contextlib
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import jwt
import msgspec
from starlette.requests import Request

from foremind.api.admin_routes import CompanionBody, Revocation
from foremind.api.dependencies import body_of
from foremind.api.record_routes import RecordBody
from foremind.auth.access_tokens import read_token
from foremind.auth.signing_keys import KeyRing
from foremind.domain.errors import NOT_JSON, InvalidMessage, NotAuthenticated
from foremind.domain.export_file import Export
from foremind.gateway.protocol.decoding import cause_in, decode
from foremind.retrieval.documents.chunking import passages_of
from foremind.retrieval.documents.text_extraction import MEDIA_TYPES, text_of
from tests.fuzzing.readers import read_by_all

_NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
_SECRET = "thirty-two bytes that are no secret"
_KEYS = KeyRing(_SECRET, None)
_MOST_CHARS = 4000
_MOST_OFFSET = 24 * 60 - 1  # minutes from UTC
_BODIES = (Export, CompanionBody, Revocation, RecordBody)


def frame(data: bytes) -> None:
    """A text frame: what the socket layer passes on is valid UTF-8."""
    text = data.decode("utf-8", "ignore")
    cause_in(text)
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
        reading = body_of(request, shape)
        with contextlib.suppress(InvalidMessage, StopIteration):
            while True:  # a large one lets others work in between
                reading.send(None)


def draft(data: bytes) -> None:
    """What a player types, given to everything that reads text; the first bytes say when."""
    when = _NOW + timedelta(days=int.from_bytes(data[:2]) % 3000)
    zone = timezone(
        timedelta(minutes=int.from_bytes(data[2:4]) % (2 * _MOST_OFFSET) - _MOST_OFFSET)
    )
    read_by_all(data[4:].decode("utf-8", "ignore")[:_MOST_CHARS], when.astimezone(zone))


def document(data: bytes) -> None:
    """A document of any type; the first byte says which."""
    kind = MEDIA_TYPES[data[0] % len(MEDIA_TYPES)] if data else MEDIA_TYPES[0]
    with contextlib.suppress(InvalidMessage), contextlib.redirect_stderr(io.StringIO()):
        passages_of(text_of(data[1:], kind))


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (frame, token, claims, body, draft, document)
}
