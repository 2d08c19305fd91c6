"""The AsyncAPI 3 contract, generated from the message types and one example of each. Pure."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec

from foremind import __version__
from foremind.domain.memory import LoreView, MemoryView
from foremind.domain.session_state import SessionState, StatePatch
from foremind.domain.settings.settings import Settings
from foremind.gateway.flow_control import limits_of
from foremind.gateway.protocol.client_messages import (
    MAX_FRAME_BYTES,
    ActionResult,
    ClientMessage,
    DraftClear,
    DraftUpdate,
    MessageEdit,
    MessageSend,
    ResponseCancel,
    ResponseChoose,
    ResponseRegenerate,
    Resume,
    SessionOpen,
    SessionUpdate,
    UserClaim,
)
from foremind.gateway.protocol.server_events import (
    PROTOCOL,
    ActionAccepted,
    ActionRequested,
    BehaviourDone,
    CompanionCard,
    ContextReady,
    ContextTimings,
    ErrorBody,
    ErrorEvent,
    Event,
    MemoryStored,
    MessageAccepted,
    ReasonView,
    ResponseChosen,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseSentence,
    ResponseTimings,
    SceneEvent,
    SceneMember,
    SceneState,
    SceneTyping,
    SessionOpened,
    SessionRedirect,
    SessionUpdated,
    SummaryAppliedEvent,
    TurnErased,
    TurnStored,
    TurnView,
)

_PAST = datetime(2026, 5, 19, 18, 2, 11, tzinfo=UTC)
_NOW = datetime(2026, 5, 20, 12, 0, 3, tzinfo=UTC)
_SESSION = "5b0e8a8e-6f0c-4c65-9d3a-0f2d6c1f7a10"
_RESPONSE = "9d0b1e7c4d6b4a0f8f5e2c3b1a0d9e8f"

EXAMPLES: dict[type[msgspec.Struct], msgspec.Struct] = {
    type(example): example
    for example in (
        SessionOpen(
            companion="wren",
            user=UserClaim("u1", "Ana"),
            time_zone="Europe/Lisbon",
            language="pt-PT",
            resume={"session_id": _SESSION, "seq": 9},
            follow=True,
            greeting=0,
        ),
        SessionUpdate(
            "…",
            StatePatch(task="Find the lost compass", flags={"door_open": True}),
            contexts=True,
            sentences=True,
            event_id="e1",
        ),
        DraftUpdate(text="What did I promise?"),
        DraftClear(),
        MessageSend(id="m1", text="What did I promise?", event_id="m1"),
        MessageEdit(id="m2", message_id="m1", text="What did I promise you?", event_id="m2"),
        ResponseRegenerate(id="g1", message_id="m2", event_id="g1"),
        ResponseChoose(message_id="m2", index=0),
        ResponseCancel(response_id=_RESPONSE),
        ActionResult(id="message:ana:m1>mara#0", result="The rope holds.", event_id="e2"),
        SessionOpened(
            seq=1,
            protocol=PROTOCOL,
            server=__version__,
            session_id=_SESSION,
            relationship_id="1",
            user=UserClaim("u1", "Ana"),
            companion=CompanionCard("wren", "Wren", "You are back. Sit, the kettle is on."),
            pause_ms=500,
            limits=limits_of(Settings()),
            resumed=False,
            consent="assumed",
            model=None,
            turns=[TurnView("7", "user", "m0", "completed", "I promise to help tomorrow", _PAST)],
        ),
        SessionUpdated(
            seq=15,
            expires_at=_NOW + timedelta(hours=1),
            scopes=["chat", "memory:read", "memory:write"],
            state=SessionState("Find the lost compass", {"door_open": True}),
            event_id="e1",
        ),
        SessionRedirect(seq=16, url="wss://game.example/v1/ws?gateway=gateway-2"),
        ContextReady(
            seq=2,
            draft="What did I promise?",
            trigger="eager",
            memories=[
                MemoryView(
                    id="7",
                    content="I promise to help tomorrow",
                    score=0.61,
                    significance=0.65,
                    created_at=_PAST,
                    speaker="user",
                    memory_type="conversation",
                    age="yesterday",
                    relevance=0.6,
                    superseded=False,
                )
            ],
            timings=ContextTimings(2.4, 0.9, 3.3),
            lore=[LoreView("12", "The lighthouse")],
        ),
        MessageAccepted(seq=3, id="m1", turn_id="12", duplicate=False, context="hit", ready_ms=0.2),
        ResponseCreated(seq=4, response_id=_RESPONSE, message_id="m1"),
        ResponseDelta(seq=5, response_id=_RESPONSE, delta="You "),
        ResponseSentence(
            seq=8, response_id=_RESPONSE, index=0, text="You promised to help.", emotion="happy"
        ),
        ActionRequested(
            seq=1,
            response_id=_RESPONSE,
            id="message:ana:m1>mara#0",
            name="give",
            arguments={"item": "rope", "to": "ana"},
            companion="mara",
        ),
        ActionAccepted(seq=2, id="message:ana:m1>mara#0", duplicate=False, event_id="e2"),
        ResponseDone(
            seq=9,
            response_id=_RESPONSE,
            status="completed",
            text="You promised to help tomorrow.",
            timings=ResponseTimings(210.4, 1480.2),
            message_id="m1",
            used=["7"],
        ),
        ResponseChosen(
            seq=17,
            message_id="m2",
            turn=TurnView(
                "17", "companion", None, "completed", "To help tomorrow.", _NOW, "m2", 0, 2
            ),
        ),
        MemoryStored(
            seq=10,
            message_id="m1",
            stored=False,
            memory_id=None,
            memory_type=None,
            significance=0.1,
            reasons=[ReasonView("question", 0.1)],
        ),
        SummaryAppliedEvent(seq=11, messages=12, lines=3, made_by="rules"),
        BehaviourDone(seq=12, message_id="m1", name="diary", text="Ana asked about her promise."),
        TurnStored(
            seq=13,
            turn=TurnView("13", "companion", None, "completed", "You promised to help.", _NOW),
        ),
        TurnErased(seq=18, turn_ids=["12", "13"]),
        SceneEvent(
            seq=4,
            id="message:ana:m1",
            event_type="said",
            kind="conversation",
            text="Good evening, Mara",
            how="own",
            actor="ana",
            to=["mara"],
            volume="say",
            scene="tavern",
            place="the tavern",
            at=_NOW,
        ),
        SceneState(
            seq=2,
            world="vale",
            scene="tavern",
            place="the tavern",
            time=_NOW,
            here=True,
            members=[SceneMember("player", "ana", "ana"), SceneMember("mind", "mara", "Mara")],
            timeline="7",
            events=[],
        ),
        SceneTyping(seq=3, player="bo", typing=True),
        ErrorEvent(
            seq=14,
            error=ErrorBody(
                type="invalid_request_error",
                code="invalid_message",
                message="text: expected a value, it is missing",
                param="text",
                event_id=None,
                message_id="m1",
                retryable=False,
            ),
        ),
    )
}


_CLOSE_CODES = """
Close codes: 1009 frame over 64 KiB, a JSON escape counted as two bytes; 4400 not this protocol;
4401 no valid token, or no session.open within 10 s; 4403 origin, companion or world not allowed;
4408 heartbeat lost; 4409 replaced by a newer connection of the session; 4413 reading too slowly;
4421 served by another gateway, see session.redirect; 4429 over a limit; 4503 draining, reconnect.
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
    left_out: dict[str, set[str]] = {
        event.__name__: {
            field.encode_name
            for field in msgspec.structs.fields(event)
            if field.default is msgspec.UNSET
        }
        for event in events
    }
    for name, schema in schemas.items():
        schema["description"] = inspect.cleandoc(schema["description"])
        if name not in sent_by_clients:
            # Defaults are sent too: clients can rely on every field but those that may be unset.
            unset = left_out.get(name, set())
            schema["required"] = [field for field in schema["properties"] if field not in unset]
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
