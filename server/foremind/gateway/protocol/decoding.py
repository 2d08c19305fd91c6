"""Strict decoding of what clients send, with errors that name the field. Pure."""

import json
import re
from typing import NamedTuple

import msgspec

from foremind.domain.errors import NOT_JSON, ForemindError, InvalidMessage
from foremind.domain.storable_text import check_storable
from foremind.gateway.protocol.messages import (
    MAX_FRAME_BYTES,
    MAX_ID_CHARS,
    ClientMessage,
    ErrorBody,
    MessageSend,
)

_HALF = re.compile("[\ud800-\udfff]")
_decoder = msgspec.json.Decoder(ClientMessage)
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")


def decode(raw: str, max_text_chars: int) -> ClientMessage:
    """Return the message in a frame.

    Raises:
        InvalidMessage: naming the field and what was expected there.
    """
    try:
        message: ClientMessage = _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None
    except NOT_JSON as error:
        raise InvalidMessage(
            f"The frame is not JSON: {error}. Expected one JSON object.", code="malformed_json"
        ) from None
    text = getattr(message, "text", "")
    if len(text) > max_text_chars:
        raise InvalidMessage(
            f"text: expected at most {max_text_chars} characters, got {len(text)}", param="text"
        )
    check_storable(message)
    return message


_OTHER_ESCAPE = re.compile(r"\\[^u]", re.DOTALL)


def too_large(raw: str) -> bool:
    """Tell whether a frame is over the limit.

    An escape of JSON counts as two bytes, as the character would without it, so that every way to
    write a text of an allowed length fits.
    """
    if len(raw) <= MAX_FRAME_BYTES // 4:  # of four bytes at most
        return False
    size = len(raw) if raw.isascii() else len(raw.encode("utf-8", "surrogatepass"))
    if size <= MAX_FRAME_BYTES:
        return False
    # An escaped backslash before a "u" is none.
    escapes = _OTHER_ESCAPE.sub("", raw).count("\\u")
    return size - 4 * escapes > MAX_FRAME_BYTES


class DecodingProblem(NamedTuple):
    """What an error answers: a client's `event_id`, and the id of the message it sent."""

    event_id: str | None = None
    message_id: str | None = None


def cause_of(message: ClientMessage) -> DecodingProblem:
    """Return what an error about a message answers."""
    return DecodingProblem(
        message.event_id, message.id if isinstance(message, MessageSend) else None
    )


def cause_in(raw: str) -> DecodingProblem:
    """Return what an error about a frame that could not be decoded answers, if it says so."""
    try:
        loose = json.loads(raw)  # unlike msgspec's it also reads a frame with half a character
    except (ValueError, RecursionError):
        return DecodingProblem()
    if not isinstance(loose, dict):
        return DecodingProblem()
    sent = loose.get("type") == MessageSend.__struct_config__.tag
    return DecodingProblem(
        _identifier(loose.get("event_id")), _identifier(loose.get("id")) if sent else None
    )


def error_body(error: ForemindError, cause: DecodingProblem) -> ErrorBody:
    """Return an error as the wire carries it."""
    return ErrorBody(
        type=error.kind,
        code=error.code,
        message=error.message,
        param=error.param,
        event_id=cause.event_id,
        message_id=cause.message_id,
        retryable=error.retryable,
    )


def _identifier(value: object) -> str | None:
    """Return what may be an identifier and can be sent back."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        return None
    return value if value.isascii() or not _HALF.search(value) else None


def _named(reason: str) -> InvalidMessage:
    """Turn msgspec's sentence into an error that names the field."""
    missing = _MISSING.search(reason)
    path = _PATH.search(reason)
    param = path[1] if path else None
    expectation = _PATH.sub("", reason)
    if missing:
        param = f"{param}.{missing[1]}" if param else missing[1]
        expectation = "expected a value, it is missing"
    if param == "type":
        return InvalidMessage(
            f"type: expected a message of protocol version 1; {expectation}",
            param="type",
            code="unknown_type",
        )
    return InvalidMessage(f"{param}: {expectation}" if param else expectation, param=param)
