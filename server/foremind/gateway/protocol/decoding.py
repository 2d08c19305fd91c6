"""Strict decoding of client messages, with errors that name the field. Pure."""

import json
import re
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from foremind.domain.errors import (
    NOT_JSON,
    Conflict,
    Draining,
    ForemindError,
    Interrupted,
    InvalidMessage,
    ModelServerError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
    StorageFull,
    StorageUnavailable,
    TokenLimitReached,
)
from foremind.domain.field_problems import ANOTHER_VALUE, decode_leniently, json_problem
from foremind.domain.storable_text import LONE_SURROGATE, check_storable, half_character
from foremind.gateway.protocol.client_messages import (
    MAX_FRAME_BYTES,
    MAX_ID_CHARS,
    ClientMessage,
    MessageEdit,
    MessageSend,
    ResponseChoose,
    ResponseRegenerate,
    SessionOpen,
)
from foremind.gateway.protocol.server_events import ErrorBody

_NON_UNICODE_ESCAPE = re.compile(r"\\[^u]", re.DOTALL)
_decoder: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
_MAX_PARAM_CHARS = 200
#: What a session reports about a message, by code; other codes say what a model server did wrong.
_ERRORS: dict[str, type[ForemindError]] = {
    error.code: error
    for error in (
        Conflict, Draining, Interrupted, NotAllowed, NotAuthenticated, NotFound, Overloaded,
        StorageFull, StorageUnavailable,
    )
}  # fmt: skip
#: The field that names the message, by type of frame.
_MESSAGE_IDS = {
    "message.send": "id",
    "message.edit": "id",
    "response.regenerate": "message_id",
    "response.choose": "message_id",
}


def decode(raw: str, max_text_chars: int) -> ClientMessage:
    """Decode one frame.

    Raises:
        InvalidMessage: names the field and what was expected.
    """
    try:
        message = decode_leniently(raw, _decoder.decode)
    except msgspec.ValidationError:
        raise _invalid_field(raw) from None
    except NOT_JSON as error:
        half = half_character(raw)
        if half is not None:
            raise half from None
        raise InvalidMessage(
            f"The frame is not JSON: {error}. Expected one JSON object.", code="malformed_json"
        ) from None
    text = getattr(message, "text", "")
    if len(text) > max_text_chars:
        raise InvalidMessage(
            f"text: expected at most {max_text_chars} characters, got {len(text)}", param="text"
        )
    if "\\" in raw:  # without an escape, JSON holds neither NUL nor half a character
        opens = isinstance(message, SessionOpen)  # its hints are stored as they are understood
        stored = replace(message, time_zone=None, language=None, resume=None) if opens else message
        check_storable(stored)
    return message


def too_large(raw: str) -> bool:
    """Return whether a frame exceeds the size limit.

    A `\\uXXXX` escape counts as two bytes, so that a text of allowed length fits however it is
    escaped.
    """
    if len(raw) <= MAX_FRAME_BYTES // 4:  # UTF-8 takes at most four bytes per character
        return False
    size = len(raw) if raw.isascii() else len(raw.encode("utf-8", "surrogatepass"))
    if size <= MAX_FRAME_BYTES:
        return False
    # Other escapes go first: an escaped backslash followed by "u" is not a unicode escape.
    escapes = _NON_UNICODE_ESCAPE.sub("", raw).count("\\u")
    return size - 4 * escapes > MAX_FRAME_BYTES


class ErrorCause(NamedTuple):
    """The request that an error refers to: the client's `event_id` and its message's id."""

    event_id: str | None = None
    message_id: str | None = None


def cause_of(message: ClientMessage) -> ErrorCause:
    """Return the ids that an error about a message refers to."""
    match message:
        case MessageSend() | MessageEdit():
            return ErrorCause(message.event_id, message.id)
        case ResponseRegenerate() | ResponseChoose():
            return ErrorCause(message.event_id, message.message_id)
    return ErrorCause(message.event_id)


def cause_in(raw: str) -> ErrorCause:
    """Return the ids in a frame that could not be decoded, as far as it contains any."""
    try:
        frame = json.loads(raw)  # unlike msgspec, accepts lone surrogates
    except (ValueError, RecursionError):
        return ErrorCause()
    if not isinstance(frame, dict):
        return ErrorCause()
    name = _MESSAGE_IDS.get(str(frame.get("type")))
    return ErrorCause(
        _identifier(frame.get("event_id")),
        None if name is None else _identifier(frame.get(name)),
    )


def error_body(error: ForemindError, cause: ErrorCause) -> ErrorBody:
    """Return an error in its wire form."""
    return ErrorBody(
        type=error.kind,
        code=error.code,
        message=error.message,
        param=error.param,
        event_id=cause.event_id,
        message_id=cause.message_id,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
    )


def error_of(body: ErrorBody) -> ForemindError:
    """Return the error that a wire form was made of."""
    known = _ERRORS.get(body.code)
    if known is not None:
        return known(body.message, param=body.param)
    if body.code == TokenLimitReached.code and body.retry_after_s is not None:
        return TokenLimitReached(body.message, retry_after_s=body.retry_after_s)
    if body.type == InvalidMessage.kind:
        return InvalidMessage(body.message, param=body.param, code=body.code)
    if body.retryable:
        return ModelServerError(
            "", code=body.code, message=body.message, retry_after_s=body.retry_after_s
        )
    return ForemindError(body.message, param=body.param)


def _identifier(value: object) -> str | None:
    """Return `value` if it is a valid identifier that can be sent back."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        return None
    return value if value.isascii() or not LONE_SURROGATE.search(value) else None


def _invalid_field(raw: str) -> InvalidMessage:
    """Return an error that names the field of a frame that was refused."""
    path, expected = json_problem(raw, ClientMessage)
    if path == "type":
        reason = "" if expected == ANOTHER_VALUE else f"; {expected[:_MAX_PARAM_CHARS]}"
        return InvalidMessage(
            f"type: expected a message of protocol version 1{reason}",
            param="type",
            code="unknown_type",
        )
    return InvalidMessage(f"{path}: {expected}" if path else expected, param=path or None)
