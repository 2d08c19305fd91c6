"""One example of every message, as in a short conversation."""

from datetime import UTC, datetime, timedelta

import msgspec

from foremind import __version__
from foremind.domain.memory import LoreView, MemoryView
from foremind.domain.session_state import SessionState, StatePatch
from foremind.gateway.protocol.client_messages import (
    DraftClear,
    DraftUpdate,
    MessageEdit,
    MessageSend,
    ResponseCancel,
    ResponseChoose,
    ResponseRegenerate,
    SessionOpen,
    SessionUpdate,
    UserClaim,
)
from foremind.gateway.protocol.server_events import (
    PROTOCOL,
    BehaviourDone,
    CompanionCard,
    ContextReady,
    ContextTimings,
    ErrorBody,
    ErrorEvent,
    Limits,
    MemoryStored,
    MessageAccepted,
    ReasonView,
    ResponseChosen,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseTimings,
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
            event_id="e1",
        ),
        DraftUpdate(text="What did I promise?"),
        DraftClear(),
        MessageSend(id="m1", text="What did I promise?", event_id="m1"),
        MessageEdit(id="m2", message_id="m1", text="What did I promise you?", event_id="m2"),
        ResponseRegenerate(id="g1", message_id="m2", event_id="g1"),
        ResponseChoose(message_id="m2", index=0),
        ResponseCancel(response_id=_RESPONSE),
        SessionOpened(
            seq=1,
            protocol=PROTOCOL,
            server=__version__,
            session_id=_SESSION,
            relationship_id="1",
            user=UserClaim("u1", "Ana"),
            companion=CompanionCard("wren", "Wren", "You are back. Sit, the kettle is on."),
            pause_ms=500,
            limits=Limits(
                max_frame_bytes=65_536,
                max_text_chars=8000,
                max_id_chars=128,
                max_waiting_messages=4,
                drafts_per_s=30.0,
                sends_per_s=30.0,
                http_per_s=50.0,
                max_sessions_per_user=50,
                resume_s=300.0,
                replay_events=128,
                outbound_bytes=1_048_576,
            ),
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
        ResponseDone(
            seq=9,
            response_id=_RESPONSE,
            status="completed",
            text="You promised to help tomorrow.",
            timings=ResponseTimings(210.4, 1480.2),
            message_id="m1",
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
