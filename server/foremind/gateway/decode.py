"""Strict decoding of what clients send, with errors that name the field. Pure."""

import re

import msgspec

from foremind.errors import (
    NOT_JSON,
    ForemindError,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    RateLimited,
    RequestError,
    TemporaryError,
)
from foremind.gateway.messages import ClientMessage, ErrorBody
from foremind.storable import check_storable

_decoder = msgspec.json.Decoder(ClientMessage)
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
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


def event_id_of(raw: str) -> str | None:
    """Return the `event_id` of a frame that could not be decoded, where it has one."""
    try:
        loose = msgspec.json.decode(raw)
    except NOT_JSON:
        return None
    event_id = loose.get("event_id") if isinstance(loose, dict) else None
    return event_id if isinstance(event_id, str) else None


def error_body(error: ForemindError, event_id: str | None) -> ErrorBody:
    """Return an error as the wire carries it."""
    match error:
        case NotAuthenticated():
            kind = "authentication_error"
        case NotAllowed():
            kind = "permission_error"
        case RateLimited():
            kind = "rate_limit_error"
        case RequestError():
            kind = "invalid_request_error"
        case TemporaryError():
            kind = "unavailable_error"
        case _:
            kind = "server_error"
    return ErrorBody(
        type=kind,
        code=error.code,
        message=error.message,
        param=error.param,
        event_id=event_id,
        retryable=error.retryable,
    )


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
