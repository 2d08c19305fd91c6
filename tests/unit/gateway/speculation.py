"""A simulation of one session with random latencies: keys, pauses, writes and failures.

The session with its prefetcher, context builder, cache, queue and speculation is real. What they
call is simulated: the encoder, the search, the turn store, and the language model.
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

from fair_transport import Precedence
from foremind.auth.principal import Principal
from foremind.domain.announcements import MemoriesChanged, MemoriesForgotten
from foremind.domain.companion import Companion
from foremind.domain.errors import ForemindError, Overloaded, StorageUnavailable
from foremind.domain.memory import Recalled
from foremind.domain.record import LayersState
from foremind.domain.session_state import NO_STATE, SessionState
from foremind.domain.settings.setting_definitions import Ahead
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings, Settings
from foremind.domain.turn import MadePrompt, OpenedSession, StoredTurn
from foremind.gateway.event_stream import EventStream
from foremind.gateway.live_settings import SharedValue
from foremind.gateway.protocol.client_messages import (
    DraftClear,
    DraftUpdate,
    MessageSend,
    ResponseCancel,
)
from foremind.gateway.session import Session
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import AfterReplyServices, SessionServices
from foremind.gateway.turns.request_queue import Deduplicator
from foremind.llm.prompt.layout import Prompt
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.embedding.service import EmbeddingService, LocalBackend
from foremind.retrieval.relationship_layers import RelationshipLayers
from foremind.retrieval.search import Query
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor, TaskSet
from foremind.typeahead.context_builder import ContextBuilder, ContextServices
from foremind.typeahead.context_cache import ContextCache
from foremind.typeahead.draft_lore import Lorebooks
from foremind_eval.doubles.in_process_model import InProcessModel, SingleChatModel
from foremind_eval.doubles.virtual_time import VirtualClock
from foremind_models import Manifest

_OPENED = OpenedSession(UUID(int=1), 1, 1, 0, 0, RelationshipSettings(), 0, False, True)
_COMPANION = Companion(1, "wren", "Wren", "", "You are Wren.", CompanionSettings(), 1)
_WORDS = (
    "the", "harbour", "storm", "boat", "sister", "lives", "near", "an", "old", "lighthouse",
)  # fmt: skip
_LIMITS = (10, 3)


@dataclass
class SentMessage:
    """A message, and the interval in which its prompt may have been assembled."""

    id: str
    text: str
    entered: float
    accepted: float | None = None
    prompt: Prompt | None = None
    failed: str | None = None


@dataclass
class World:
    """What is stored, with the history of its versions, and the source of randomness."""

    rng: random.Random
    manifest: Manifest
    settings: Settings
    metrics: Metrics
    mode: Ahead
    eager: bool
    versions: list[tuple[float, int, frozenset[int]]] = field(default_factory=list)
    limits: list[tuple[float, int]] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)
    sent: list[SentMessage] = field(default_factory=list)
    written: list[tuple[str, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    layers_version: int = 0
    erasures: int = 0
    layers: dict[int, RelationshipLayers] = field(default_factory=dict)

    def fault(self, probability: float) -> bool:
        """Return whether to fail now, and record it."""
        if self.rng.random() >= probability:
            return False
        self.faults.append(asyncio.get_running_loop().time())
        return True

    def delay(self, usual_s: float, slow_probability: float = 0.03) -> float:
        """Return a random latency in seconds; very slow ones are recorded as faults."""
        if self.rng.random() < slow_probability:
            self.faults.append(asyncio.get_running_loop().time())
            return self.rng.uniform(0.5, 3.0)
        return self.rng.uniform(0.0, 2 * usual_s)

    # The encoder.
    def encode(self, texts: list[str], stop: object) -> np.ndarray:
        """Return a unit vector derived from the text, float32 [1, 8]."""
        if self.fault(0.03):
            raise Overloaded("Simulated failure.")
        direction = np.zeros(8, np.float32)
        direction[zlib.crc32(texts[0].encode()) % 8] = 1.0
        return direction[None]

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there."""
        return 1.0 if letters in _WORDS else 0.0

    # The search.
    async def search(self, query: Query) -> list[Recalled]:
        """Return the memories as of the start of the search."""
        ids = self.versions[-1][2]
        await asyncio.sleep(self.delay(0.01))
        if self.fault(0.03):
            raise StorageUnavailable("Simulated failure.")
        return recalled(query.text, ids, query.policy.limit)

    # The turn store.
    async def commit_message(
        self, session: OpenedSession, message_id: str, text: str, now: datetime, **_: object
    ) -> StoredTurn:
        """Store a message."""
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if self.rng.random() < 0.02:
            raise StorageUnavailable("Simulated failure.")
        self.written.append(("user", text))
        return StoredTurn(len(self.written), duplicate=False, answered=False)

    async def commit_reply(
        self, session: OpenedSession, reply_to: int, status: str, text: str, now: datetime,
        *, ingested: bool, kept: bool, erasures: int, origin: str, urgent: bool,
        prompt: MadePrompt | None,
    ) -> int | None:  # fmt: skip
        """Store a reply, unless something was erased since its prompt was assembled."""
        await asyncio.sleep(self.rng.uniform(0.001, 0.02))
        if erasures != self.erasures:
            return None
        self.written.append(("companion", text))
        return len(self.written)

    async def session_turns(self, *_: object) -> list[Any]:
        """Return the stored turns, to be loaded again."""
        return [
            SimpleNamespace(speaker=speaker, content=text, id=number, message_id=None)
            for number, (speaker, text) in enumerate(self.written, 1)
            if not (number == len(self.written) and speaker == "user")
        ]

    async def recent_turns(self, *_: object) -> list[Any]:
        """Return the turns before the session, of which there are none."""
        return []

    # The layer cache.
    def get(self, relationship_id: int) -> RelationshipLayers:
        """Return the cached layers, without records."""
        version = self.layers_version
        if version not in self.layers:
            state = LayersState(version, 0, 0)
            self.layers[version] = RelationshipLayers(state, [], self.manifest, estimate_tokens)
        return self.layers[version]


def recalled(text: str, ids: frozenset[int], limit: int) -> list[Recalled]:
    """Return the memories recalled for a text, in an order derived from it."""
    words = sorted(set(text.split()))
    order = sorted(ids, key=lambda id_: (-sum((id_ * len(word)) % 7 for word in words), id_))
    return [
        Recalled(id_, f"memory number {id_}", "user", "conversation", 0.5,
                 datetime(2026, 4, 1, tzinfo=ZoneInfo("UTC")), False, 0.5, 0.5, 0.5, 0.5)
        for id_ in order[:limit]
    ]  # fmt: skip


class _Listener:
    """Records the events, and the prompt when a message is accepted."""

    accepted = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.session: Session | None = None

    def put(self, frame: bytes, *, event: object = None, telemetry: bool = False) -> bool:
        told = msgspec.json.decode(frame)
        self.world.events.append(told)
        if told["type"] == "message.accepted" and self.session is not None:
            sent = next(sent for sent in self.world.sent if sent.id == told["id"])
            reply = self.session._pipeline._replies.current
            assert reply is not None
            sent.prompt, sent.accepted = reply.prompt, asyncio.get_running_loop().time()
        if told["type"] == "error":
            for sent in self.world.sent:
                if sent.id == told["error"]["event_id"]:
                    sent.failed = told["error"]["code"]
        return True

    def close(self, code: int, reason: str) -> None:
        """Nothing to close."""


async def live(world: World) -> None:
    """Run one session from its opening to its end."""
    rng, clock = world.rng, VirtualClock()
    world.versions.append((0.0, 0, frozenset(range(1, 7))))
    world.limits.append((0.0, _LIMITS[0]))
    cast("Any", asyncio.get_running_loop()).executor_delay = lambda: world.delay(0.005)
    model = InProcessModel(
        lambda: -1.0 if rng.random() < 0.02 else rng.uniform(0.0, 0.3),
        lambda _: ["Well", ", ", "yes", "."],
    )
    settings = msgspec.structs.replace(
        world.settings, **{"eager": world.eager, "recall_gate": False}
    )
    supervisor = Supervisor(clock, world.metrics)
    async with EmbeddingService(
        LocalBackend(cast("Any", world)), world.manifest, 8, clock, world.metrics, supervisor
    ) as embedder:
        services = _session_services(
            world, model, RuntimeServices(settings, clock, world.metrics, supervisor), embedder
        )
        listener = _Listener(world)
        principal = Principal("ana", "Ana")
        overrides = SharedValue(RelationshipSettings())
        policy = SessionPolicy(
            services, principal.name, SharedValue(_COMPANION), overrides, _OPENED, ZoneInfo("UTC")
        )
        session = Session(services, principal, policy, _OPENED, [], EventStream(300.0, clock))
        listener.session = session
        session.connect(listener, await session.read_recent_turns())
        await _Player(world, session).play()
        await session.close()


def _session_services(
    world: World, model: InProcessModel, runtime: RuntimeServices, embedder: EmbeddingService
) -> SessionServices:
    stub = cast(
        "Any",
        SimpleNamespace(
            wake=lambda _: None,
            ingest_soon=lambda *_: None,
            run=lambda *_: None,
            cache_turn=lambda *_: None,
            mark_used=_nothing,
            may_have_documents=lambda _: False,
            deletion_count=lambda _: 0,
            token_identity=_nothing,
            ensure=_unchanged,
            removals=lambda _: 0,
        ),
    )
    stores = cast("Any", world)
    builder = ContextBuilder(embedder, stores, stores, stub, runtime.clock, runtime.metrics)
    return SessionServices(
        runtime=runtime,
        freshness=stub,
        authority=stub,
        stores=cast(
            "Any",
            SimpleNamespace(
                companions=stores,
                relationships=stores,
                turns=stores,
                states=cast("Any", SimpleNamespace(read=_no_state)),
            ),
        ),
        live_settings=stores,
        context=ContextServices(
            embedder=embedder,
            index=stores,
            layer_cache=stores,
            library=stub,
            builder=builder,
            cache=ContextCache(100, 1 << 20, 60.0, runtime.clock),
            lorebooks=Lorebooks(),
        ),
        chat_models=SingleChatModel(runtime.settings, model, world.mode),
        deduplicator=Deduplicator(Precedence()),
        after_reply=AfterReplyServices(
            behaviours=stub,
            ingester=stub,
            access_counts=cast("Any", SimpleNamespace(count_access=lambda *_: None)),
            background_worker=stub,
        ),
        exchanges=stub,
    )


async def _nothing(*_: object) -> None:
    return None


async def _no_state(*_: object) -> tuple[SessionState, int]:
    return NO_STATE, 0


async def _unchanged(_: int) -> bool:
    return False


_ACTIONS = ("type", "delete", "clear", "send", "cancel", "ingest", "erase", "settings", "idle")
_WEIGHTS = (12, 2, 1, 5, 1, 2, 1, 1, 3)


class _Player:
    """Acts on a session at random, and changes what it depends on."""

    def __init__(self, world: World, session: Session) -> None:
        self._world = world
        self._session = session
        self._draft = ""

    async def play(self) -> None:
        """Do between three and twenty-four random actions."""
        rng = self._world.rng
        for _ in range(rng.randrange(3, 25)):
            action = rng.choices(_ACTIONS, _WEIGHTS)[0]
            try:
                self._act(action, asyncio.get_running_loop().time())
            except ForemindError as error:
                if action == "send":
                    self._world.sent[-1].failed = error.code
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.1, 0.15, 0.2, 0.6, 1.5)))

    def _act(self, action: str, now: float) -> None:
        rng, session = self._world.rng, self._session
        match action:
            case "type":
                self._draft += rng.choice(_WORDS) + rng.choice((" ", "", ". ", "?"))
                session.handle(DraftUpdate(text=self._draft), now)
            case "delete":
                self._draft = self._draft[: -rng.randrange(1, 6)]
                session.handle(DraftUpdate(text=self._draft), now)
            case "clear":
                self._draft = ""
                session.handle(DraftClear(), now)
            case "send" if self._draft.strip():
                self._send(now)
            case "cancel":
                self._cancel(now)
            case "ingest" | "erase":
                self._change_memories(action, now)
            case "settings":
                self._change_settings(now)

    def _send(self, now: float) -> None:
        rng, sent = self._world.rng, self._world.sent
        text = self._draft if rng.random() < 0.8 else self._draft + rng.choice(_WORDS)
        message_id = f"m{len(sent)}"
        sent.append(SentMessage(message_id, text, now))
        self._draft = ""
        self._session.handle(MessageSend(id=message_id, text=text, event_id=message_id), now)

    def _cancel(self, now: float) -> None:
        created = [event for event in self._world.events if event["type"] == "response.created"]
        if created:
            response_id = created[-1]["response_id"]
            self._session.handle(ResponseCancel(response_id=response_id), now)

    def _change_memories(self, action: str, now: float) -> None:
        world = self._world
        _, version, ids = world.versions[-1]
        ids = ids | {version + 7} if action == "ingest" else ids - {min(ids, default=0)}
        world.versions.append((now, version + 1, ids))
        if action == "ingest":
            self._session.on_announcement(
                MemoriesChanged(1, version + 1), TaskSet(), lambda *_: None
            )
        else:
            world.erasures += 1
            erased = MemoriesForgotten(1, version + 1, 0, world.erasures, None, world.erasures)
            self._session.forget(erased)

    def _change_settings(self, now: float) -> None:
        world = self._world
        world.layers_version += 1
        world.limits.append((now, world.rng.choice(_LIMITS)))
        settings = CompanionSettings(recall_limit=world.limits[-1][1])
        self._session._session_policy._shared_overrides.value = RelationshipSettings(user=settings)


def check(world: World) -> None:
    """Compare the prompts with what they would be without speculation."""
    stored = [text for speaker, text in world.written if speaker == "user"]
    accepted = [sent for sent in world.sent if sent.accepted is not None]
    assert [sent.text for sent in accepted] == stored, "accepted messages are stored, and no others"
    for sent in accepted:
        assert sent.prompt is not None and sent.accepted is not None
        _check_prompt(world, sent, sent.prompt, sent.accepted)
    _check_events(world)


def _check_prompt(world: World, sent: SentMessage, prompt: Prompt, accepted: float) -> None:
    assert prompt.message == sent.text
    assert prompt.messages()[-1]["content"].endswith(sent.text)
    versions = _in_force([(at, ids) for at, _, ids in world.versions], sent.entered, accepted)
    possible = [
        recalled(" ".join(sent.text.split()), ids, limit)
        for ids in versions
        for limit in _in_force(world.limits, sent.entered, accepted)
    ]
    memories = list(prompt.memories)
    faulty = any(sent.entered - 3.0 <= at <= accepted for at in world.faults)
    if faulty and not memories:
        return
    if world.mode == "off":
        assert memories in possible, "identical to a context without speculation"
    else:
        memory_ids = {memory.id for memory in memories}
        assert any({memory.id for memory in context} <= memory_ids for context in possible)
        assert memory_ids <= set().union(*versions), "nothing that is erased"
    text = "\n".join(message["content"] for message in prompt.messages())
    assert all(memory.content in text for memory in memories)


def _in_force(log: list[tuple[float, Any]], since: float, until: float) -> list[Any]:
    """Return every value in force at some moment between two times, both included."""
    before = [value for at, value in log if at < since]
    return [*before[-1:], *(value for at, value in log if since <= at <= until)]


def _check_events(world: World) -> None:
    """Nothing is sent before its message is accepted, and stored replies are what was sent."""
    in_progress: dict[str, str] = {}
    sent: list[str] = []
    accepted = set()
    for event in world.events:
        match event["type"]:
            case "message.accepted":
                accepted.add(event["id"])
            case "response.created":
                assert event["message_id"] in accepted
                in_progress[event["response_id"]] = ""
            case "response.output_text.delta":
                in_progress[event["response_id"]] += event["delta"]
            case "response.done":
                text = in_progress.pop(event["response_id"])
                retracted = event["status"] == "cancelled" and not event["text"]
                assert retracted or text == event["text"]
                if event["text"]:
                    sent.append(event["text"])
            case other:
                assert other in ("session.opened", "context.ready", "error")
    assert not in_progress, "every reply has an end"
    stored = iter(text for speaker, text in world.written if speaker == "companion")
    assert all(text in stored for text in sent), "in the same order"
