"""Fuzz targets for untrusted input. A target suppresses the errors that its reader documents."""

import contextlib
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import jwt
import msgspec
from starlette.requests import Request

from foremind.api.admin_routes import CompanionBody, Revocation
from foremind.api.dependencies import read_json
from foremind.api.record_routes import RecordBody
from foremind.auth.access_tokens import read_token
from foremind.auth.signing_keys import KeyRing
from foremind.cards.card_fields import companion_of
from foremind.cards.card_file import read_card
from foremind.domain.errors import NOT_JSON, InvalidMessage, NotAuthenticated, TooLarge
from foremind.domain.export_file import Export
from foremind.gateway.protocol.decoding import cause_in, decode
from foremind.retrieval.documents.chunking import split_into_chunks
from foremind.retrieval.documents.text_extraction import MEDIA_TYPES, document_text
from tests.fuzzing.readers import read_by_all

_NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
_SECRET = "thirty-two bytes that are no secret"
_KEYS = KeyRing(_SECRET, None)
_MAX_DRAFT_CHARS = 4000
_MAX_OFFSET_MINUTES = 24 * 60 - 1
_BODIES = (Export, CompanionBody, Revocation, RecordBody)


def frame(data: bytes) -> None:
    """A text frame; the WebSocket layer passes on valid UTF-8 only."""
    text = data.decode("utf-8", "ignore")
    cause_in(text)
    with contextlib.suppress(InvalidMessage):
        decode(text, _MAX_DRAFT_CHARS)


def token(data: bytes) -> None:
    """An arbitrary token."""
    with contextlib.suppress(NotAuthenticated):
        read_token(data.decode("utf-8", "replace"), _KEYS, None, _NOW.timestamp())


def claims(data: bytes) -> None:
    """Arbitrary claims in a validly signed token."""
    try:
        decoded = msgspec.json.decode(data, type=dict[str, object])
        signed = jwt.encode(decoded, _SECRET)
    except (*NOT_JSON, TypeError, ValueError):
        return
    with contextlib.suppress(NotAuthenticated):
        read_token(signed, _KEYS, None, _NOW.timestamp())


def body(data: bytes) -> None:
    """A request body, decoded as every type of body."""
    for body_type in _BODIES:

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": data, "more_body": False}

        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        coroutine = read_json(request, body_type)
        with contextlib.suppress(InvalidMessage, StopIteration):
            while True:  # decoding a large body yields to the event loop
                coroutine.send(None)


def draft(data: bytes) -> None:
    """A draft for every text reader; the first four bytes choose the date and the time zone."""
    when = _NOW + timedelta(days=int.from_bytes(data[:2]) % 3000)
    zone = timezone(
        timedelta(
            minutes=int.from_bytes(data[2:4]) % (2 * _MAX_OFFSET_MINUTES) - _MAX_OFFSET_MINUTES
        )
    )
    read_by_all(data[4:].decode("utf-8", "ignore")[:_MAX_DRAFT_CHARS], when.astimezone(zone))


def document(data: bytes) -> None:
    """A document; the first byte chooses its media type."""
    kind = MEDIA_TYPES[data[0] % len(MEDIA_TYPES)] if data else MEDIA_TYPES[0]
    with contextlib.suppress(InvalidMessage), contextlib.redirect_stderr(io.StringIO()):
        split_into_chunks(document_text(data[1:], kind))


def card(data: bytes) -> None:
    """A file with a character card."""
    with contextlib.suppress(InvalidMessage, TooLarge):
        companion_of(read_card(data).data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (frame, token, claims, body, draft, document, card)
}
