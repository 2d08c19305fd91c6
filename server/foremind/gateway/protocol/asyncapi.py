"""The AsyncAPI 3 contract, generated from the message types and one example of each. Pure."""

import inspect
from typing import Any, get_args

import msgspec

from foremind import __version__
from foremind.gateway.protocol.client_messages import MAX_FRAME_BYTES, ClientMessage, Resume
from foremind.gateway.protocol.examples import EXAMPLES
from foremind.gateway.protocol.server_events import Event

_CLOSE_CODES = """
Close codes: 1009 frame over 64 KiB, a JSON escape counted as two bytes; 4400 not this protocol;
4401 no valid token, or no session.open within 10 s; 4403 origin or companion not allowed; 4408
heartbeat lost; 4409 replaced by a newer connection of the session; 4413 reading too slowly; 4421
served by another gateway, see session.redirect; 4429 over a limit; 4503 draining, reconnect.
Do not reconnect after 4400, 4403 or 4409; after 4401 reconnect only with a fresh token.
"""


def client_messages() -> tuple[type[msgspec.Struct], ...]:
    """Return the types of the messages that clients send."""
    return get_args(ClientMessage)


def server_events() -> tuple[type[Event], ...]:
    """Return the types of the events that the server sends."""
    return tuple(sorted(Event.__subclasses__(), key=lambda event: event.__name__))


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI document as JSON-encodable values."""
    messages, events = client_messages(), server_events()
    _, schemas = msgspec.json.schema_components(
        (*messages, Resume, *events), ref_template="#/components/schemas/{name}"
    )
    _, sent_by_clients = msgspec.json.schema_components((*messages, Resume))
    for name, schema in schemas.items():
        schema["description"] = inspect.cleandoc(schema["description"])
        if name not in sent_by_clients:
            # Defaults are sent too: clients can rely on every field.
            schema["required"] = list(schema["properties"])
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Foremind",
            "version": __version__,
            "description": (
                "Text frames, each one JSON object with `type`, of at most "
                f"{MAX_FRAME_BYTES:,} bytes. Unknown fields are ignored; an unknown type is an "
                "error, and the connection stays open. Clients must ignore unknown events and "
                f"fields.{_CLOSE_CODES}"
            ),
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {"local": {"host": "127.0.0.1:8770", "protocol": "ws"}},
        "channels": {
            "conversation": {
                "address": "/v1/ws",
                "messages": {
                    message.__name__: {"$ref": f"#/components/messages/{message.__name__}"}
                    for message in (*messages, *events)
                },
            }
        },
        "operations": {
            "receiveFromClient": _operation("receive", "What clients send.", messages),
            "sendToClient": _operation("send", "What the server sends.", events),
        },
        "components": {
            "messages": {kind.__name__: _message(kind) for kind in (*messages, *events)},
            "schemas": schemas,
        },
    }


def _operation(action: str, summary: str, messages: tuple[type, ...]) -> dict[str, Any]:
    return {
        "action": action,
        "summary": summary,
        "channel": {"$ref": "#/channels/conversation"},
        "messages": [
            {"$ref": f"#/channels/conversation/messages/{message.__name__}"} for message in messages
        ],
    }


def _message(kind: type[msgspec.Struct]) -> dict[str, Any]:
    tag = str(kind.__struct_config__.tag)
    return {
        "name": tag,
        "title": tag,
        "summary": " ".join((kind.__doc__ or "").split()),
        "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
        "examples": [{"name": tag, "payload": msgspec.to_builtins(EXAMPLES[kind])}],
    }
