"""A session whose every wait is a draw: keys, pauses, writes and failures in any order.

The session, its watcher, preparer, cache, queue and what it does ahead are the real ones. What they
reach for is drawn: the encoder, the search, the store of turns, and the language model.
"""

import asyncio
import random
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from foremind.auth.principal import Principal
from foremind.domain.companion import Companion, CompanionSettings, RelationshipSettings
from foremind.domain.errors import ForemindError, Overloaded, StorageUnavailable
from foremind.domain.memory import Recalled
from foremind.domain.record import LayersState
from foremind.domain.session_state import NO_STATE, SessionState
from foremind.domain.settings import Ahead, Settings
from foremind.domain.turn import OpenedSession, StoredTurn
from foremind.gateway.event_stream import EventStream
from foremind.gateway.live_settings import SharedValue
from foremind.gateway.protocol.messages import DraftClear, DraftUpdate, MessageSend, ResponseCancel
from foremind.gateway.session import Session
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.layout import Prompt
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.embedding.manifest import Manifest
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.layer_cache import RelationshipLayers
from foremind.retrieval.search import Query
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.testing.in_process_model import InProcessModel, SingleChatModel
from foremind.testing.virtual_time import VirtualClock
from foremind.typeahead.context_builder import ContextBuilder
from foremind.typeahead.context_cache import ContextCache

_OPENED = OpenedSession(UUID(int=1), 1, 1, 0, 0, RelationshipSettings(), 0, False, True)
_COMPANION = Companion(1, "wren", "Wren", "", "You are Wren.", CompanionSettings(), 1)
_WORDS = (
    "the", "harbour", "storm", "boat", "sister", "lives", "near", "an", "old", "lighthouse",
)  # fmt: skip
_LIMITS = (10, 3)


@dataclass
class Sent:
    """A message, and when the request for its answer may have been made."""

    id: str
    text: str
    entered: float
    accepted: float | None = None
    prompt: Prompt | None = None
    failed: str | None = None


@dataclass
class World:
    """What is true, when it became so, and what was drawn for it."""

    random: random.Random
    manifest: Manifest
    settings: Settings
    metrics: Metrics
    ahead: Ahead
    eager: bool
    versions: list[tuple[float, int, frozenset[int]]] = field(default_factory=list)
    limits: list[tuple[float, int]] = field(default_factory=list)
    troubles: list[float] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    written: list[tuple[str, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    layers_version: int = 0
    erasures: int = 0
    layers: dict[int, RelationshipLayers] = field(default_factory=dict)

    def trouble(self, share: float) -> bool:
        """Tell whether something fails now, and note it."""
        if self.random.random() >= share:
            return False
        self.troubles.append(asyncio.get_running_loop().time())
        return True

    def delay(self, usual_s: float, share_slow: float = 0.03) -> float:
        """Draw how long something takes."""
        if self.random.random() < share_slow:
            self.troubles.append(asyncio.get_running_loop().time())
            return self.random.uniform(0.5, 3.0)
        return self.random.uniform(0.0, 2 * usual_s)

    # The encoder.
    def encode(self, texts: list[str], stop: object) -> np.ndarray:
        """Return a unit vector that depends on the text."""
        if self.trouble(0.03):
            raise Overloaded("It failed, as it was to.")
        direction = np.zeros(8, np.float32)
        direction[zlib.crc32(texts[0].encode()) % 8] = 1.0
        return direction[None]

    def is_word(self, letters: str) -> bool:
        """Tell whether some letters are one of the words."""
        return letters in _WORDS

    # The search.
    async def search(self, query: Query) -> list[Recalled]:
        """Return what the version at the beginning of the search holds."""
        ids = self.versions[-1][2]
        await asyncio.sleep(self.delay(0.01))
        if self.trouble(0.03):
            raise StorageUnavailable("It failed, as it was to.")
        return recalled(query.text, ids, query.policy.limit)

    # The store of turns.
    async def commit_message(
        self, session: OpenedSession, message_id: str, text: str, now: datetime, *, kept: bool
    ) -> StoredTurn:
        """Note a message."""
        await asyncio.sleep(self.random.uniform(0.001, 0.02))
        if self.random.random() < 0.02:
            raise StorageUnavailable("It failed, as it was to.")
        self.written.append(("user", text))
        return StoredTurn(len(self.written), duplicate=False, answered=False)

    async def commit_reply(
        self, session: OpenedSession, reply_to: int, status: str, text: str, now: datetime,
        *, judged: bool, kept: bool, erasures: int, unheard: object,
    ) -> int | None:  # fmt: skip
        """Note a reply, unless something was forgotten since its prompt was put together."""
        await asyncio.sleep(self.random.uniform(0.001, 0.02))
        if erasures != self.erasures:
            return None
        self.written.append(("companion", text))
        return len(self.written)

    async def working(self, *_: object) -> list[Any]:
        """Return what was said, to be read again."""
        return [
            SimpleNamespace(speaker=speaker, content=text, id=number, message_id=None)
            for number, (speaker, text) in enumerate(self.written, 1)
            if not (number == len(self.written) and speaker == "user")
        ]

    async def recent(self, *_: object) -> list[Any]:
        """Return what was said before the session, which is nothing."""
        return []

    # What is held of the relationship.
    def get(self, relationship_id: int) -> RelationshipLayers:
        """Return what is held: it has no records."""
        version = self.layers_version
        if version not in self.layers:
            state = LayersState(version, 0, 0)
            self.layers[version] = RelationshipLayers(state, [], {}, self.manifest, estimate_tokens)
        return self.layers[version]


def recalled(text: str, ids: frozenset[int], limit: int) -> list[Recalled]:
    """Return the memories that a text brings back, in an order that depends on it."""
    words = sorted(set(text.split()))
    order = sorted(ids, key=lambda each: (-sum((each * len(word)) % 7 for word in words), each))
    return [
        Recalled(each, f"memory number {each}", "user", "conversation", 0.5,
                 datetime(2026, 4, 1, tzinfo=ZoneInfo("UTC")), False, 0.5, 0.5, 0.5, 0.5)
        for each in order[:limit]
    ]  # fmt: skip


class _Outbox:
    """Takes in the events, and looks at the prompt when a message is accepted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.session: Session | None = None

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        event = msgspec.json.decode(frame)
        self.world.events.append(event)
        if event["type"] == "message.accepted" and self.session is not None:
            sent = next(each for each in self.world.sent if each.id == event["id"])
            reply = self.session._conversation._reply
            assert reply is not None
            sent.prompt, sent.accepted = reply.prompt, asyncio.get_running_loop().time()
        if event["type"] == "error":
            for sent in self.world.sent:
                if sent.id == event["error"]["event_id"]:
                    sent.failed = event["error"]["code"]
        return True

    def close(self, code: int, reason: str) -> None:
        """Nothing to close."""


async def live(world: World) -> None:
    """One session from its opening to its end."""
    draw, clock = world.random, VirtualClock()
    world.versions.append((0.0, 0, frozenset(range(1, 7))))
    world.limits.append((0.0, _LIMITS[0]))
    cast("Any", asyncio.get_running_loop()).executor_delay = lambda: world.delay(0.005)
    model = InProcessModel(
        lambda: -1.0 if draw.random() < 0.02 else draw.uniform(0.0, 0.3),
        lambda _: ["Well", ", ", "yes", "."],
    )
    settings = world.settings.model_copy(update={"eager": world.eager, "recall_gate": False})
    other = SimpleNamespace(
        look=lambda: None, run=lambda *_: None, hand_over=lambda *_: None, refresh=_nothing,
        may_have_documents=lambda _: False, deleted=lambda _: 0,
    )  # fmt: skip
    here = cast("Any", world)
    supervisor = Supervisor(clock, world.metrics)
    async with EmbeddingService(
        here, world.manifest, 8, clock, world.metrics, supervisor
    ) as embedder:
        preparer = ContextBuilder(embedder, here, here, cast("Any", other), clock, world.metrics)
        services = SessionServices(
            settings=settings, clock=clock, metrics=world.metrics, authority=cast("Any", other),
            companions=here, relationships=here, current=here, turns=here,
            states=cast("Any", SimpleNamespace(read=_no_state)),
            preparer=preparer, prepared=ContextCache(100, 1 << 20, 60.0, clock),
            index=here, held=here,
            library=cast("Any", other), curation=cast("Any", other),
            afterwards=cast("Any", other), rememberer=cast("Any", other),
            uses=cast("Any", SimpleNamespace(note=lambda *_: None)),
            voices=SingleChatModel(settings, model, world.ahead), embedding="drawn",
        )  # fmt: skip
        outbox = _Outbox(world)
        caller = Principal("ana", "Ana")
        own = SharedValue(RelationshipSettings())
        terms = SessionPolicy(
            services, caller.name, SharedValue(_COMPANION), own, _OPENED, ZoneInfo("UTC")
        )
        session = Session(services, caller, terms, _OPENED, [], EventStream(300.0, clock))
        outbox.session = session
        session.greet(outbox, await session.read_past())
        await _act(world, session)
        await session.close()


async def _nothing(*_: object) -> None:
    return None


async def _no_state(*_: object) -> SessionState:
    return NO_STATE


async def _act(world: World, session: Session) -> None:
    draw, loop, draft = world.random, asyncio.get_running_loop(), ""
    for _ in range(draw.randrange(3, 25)):
        what = draw.choices(
            ("type", "erase", "clear", "send", "cancel", "write", "forget", "settings", "rest"),
            (12, 2, 1, 5, 1, 2, 1, 1, 3),
        )[0]
        try:
            match what:
                case "type":
                    draft += draw.choice(_WORDS) + draw.choice((" ", "", ". ", "?"))
                    session.handle(DraftUpdate(text=draft), loop.time())
                case "erase":
                    draft = draft[: -draw.randrange(1, 6)]
                    session.handle(DraftUpdate(text=draft), loop.time())
                case "clear":
                    draft = ""
                    session.handle(DraftClear(), loop.time())
                case "send" if draft.strip():
                    text = draft if draw.random() < 0.8 else draft + draw.choice(_WORDS)
                    sent = Sent(f"m{len(world.sent)}", text, loop.time())
                    world.sent.append(sent)
                    draft = ""
                    message = MessageSend(id=sent.id, text=text, event_id=sent.id)
                    session.handle(message, loop.time())
                case "cancel":
                    created = [e for e in world.events if e["type"] == "response.created"]
                    if created:
                        response = created[-1]["response_id"]
                        session.handle(ResponseCancel(response_id=response), loop.time())
                case "write" | "forget":
                    _, version, ids = world.versions[-1]
                    ids = ids | {version + 7} if what == "write" else ids - {min(ids, default=0)}
                    world.versions.append((loop.time(), version + 1, ids))
                    if what == "write":
                        session._terms.observe_version(version + 1)
                    else:
                        world.erasures += 1
                        session.forget(version + 1, world.erasures)
                case "settings":
                    world.layers_version += 1
                    world.limits.append((loop.time(), draw.choice(_LIMITS)))
                    own = CompanionSettings(recall_limit=world.limits[-1][1])
                    session._terms._shared_own.value = RelationshipSettings(user=own)
        except ForemindError as error:
            if what == "send":
                world.sent[-1].failed = error.code
        await asyncio.sleep(draw.choice((0.0, 0.01, 0.1, 0.15, 0.2, 0.6, 1.5)))


def check(world: World) -> None:
    """Hold what the model was given against what holds without speculation."""
    said = [text for speaker, text in world.written if speaker == "user"]
    accepted = [each for each in world.sent if each.accepted is not None]
    assert [each.text for each in accepted] == said, "stored is what was sent and accepted"
    for sent in accepted:
        assert sent.prompt is not None and sent.accepted is not None
        _check_prompt(world, sent, sent.prompt, sent.accepted)
    _check_events(world)


def _check_prompt(world: World, sent: Sent, prompt: Prompt, accepted: float) -> None:
    assert prompt.message == sent.text
    assert prompt.messages()[-1]["content"].endswith(sent.text)
    possible = [
        recalled(" ".join(sent.text.split()), ids, limit)
        for ids in _in_force([(at, ids) for at, _, ids in world.versions], sent.entered, accepted)
        for limit in _in_force(world.limits, sent.entered, accepted)
    ]
    given = list(prompt.memories)
    if any(sent.entered - 3.0 <= at <= accepted for at in world.troubles) and not given:
        return
    if world.ahead == "off":
        assert given in possible, "identical to what was computed without speculation"
    else:
        assert any({e.id for e in each} <= {e.id for e in given} for each in possible)
        there = set().union(
            *_in_force([(at, ids) for at, _, ids in world.versions], sent.entered, accepted)
        )
        assert {each.id for each in given} <= there, "nothing that is forgotten"
    text = "\n".join(message["content"] for message in prompt.messages())
    assert all(each.content in text for each in given)


def _in_force(log: list[tuple[float, Any]], since: float, until: float) -> list[Any]:
    """Return every value that held at some moment between two times, both included."""
    before = [value for at, value in log if at < since]
    return [*before[-1:], *(value for at, value in log if since <= at <= until)]


def _check_events(world: World) -> None:
    """Nothing is heard before it is accepted, and what is heard is what is stored."""
    open_: dict[str, str] = {}
    heard: list[str] = []
    accepted = set()
    for event in world.events:
        match event["type"]:
            case "message.accepted":
                accepted.add(event["id"])
            case "response.created":
                assert event["message_id"] in accepted
                open_[event["response_id"]] = ""
            case "response.output_text.delta":
                open_[event["response_id"]] += event["delta"]
            case "response.done":
                said = open_.pop(event["response_id"])
                taken_back = event["status"] == "cancelled" and not event["text"]
                assert taken_back or said == event["text"]
                if event["text"]:
                    heard.append(event["text"])
            case other:
                assert other in ("session.opened", "context.ready", "error")
    assert not open_, "every reply has an end"
    stored = iter(text for speaker, text in world.written if speaker == "companion")
    assert all(each in stored for each in heard), "in the same order"
