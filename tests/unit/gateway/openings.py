"""A simulation of sessions that open while everything changes, with random latencies.

Handshake, registry, sessions and authority are real. The stores that they read are simulated: how
long a read takes, the moment of its snapshot, whether it fails, and concurrent changes are random.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import msgspec

from fair_transport import Precedence
from foremind.auth.access_tokens import CLOCK_SKEW_S, mint
from foremind.auth.authority import Authority
from foremind.cluster.announcement_bus import AnnouncementReceiver
from foremind.cluster.freshness import Freshness
from foremind.cluster.membership import Membership
from foremind.domain.announcements import (
    AccessRevoked,
    Announcement,
    MemoriesForgotten,
    MemoryAnnouncement,
    SessionTaken,
)
from foremind.domain.companion import Companion
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.domain.record import LayersState
from foremind.domain.session_state import NO_STATE, SessionState
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings, Settings
from foremind.domain.turn import (
    CompanionVersions,
    OpenedSession,
    RelationshipVersions,
    Turn,
    VersionsInForce,
)
from foremind.gateway.flow_control import AddressLimits, AddressSlot
from foremind.gateway.handshake import Handshake
from foremind.gateway.live_settings import LiveSettings
from foremind.gateway.protocol.client_messages import Resume, SessionOpen
from foremind.gateway.session import Session
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import AfterReplyServices, SessionServices
from foremind.gateway.turns.request_queue import Deduplicator
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.relationship_layers import RelationshipLayers
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor
from foremind.storage.companion_store import CompanionStore
from foremind.typeahead.context_builder import ContextServices
from foremind.typeahead.context_cache import ContextCache
from foremind.typeahead.draft_lore import Lorebooks
from foremind_eval.doubles.in_process_model import InProcessModel, SingleChatModel
from foremind_eval.doubles.virtual_time import VirtualClock

USERS = ("ana", "bo", "cy")
_EXPIRES_S = 3600.0


@dataclass
class Listener:
    """One connection, and what it received."""

    world: "World"
    retired_before: bool
    opened: dict[str, Any] | None = None
    closed: int | None = None
    left: bool = False
    accepted: int = 0

    def put(self, frame: bytes, *, event: object = None, telemetry: bool = False) -> bool:
        """Record `session.opened`, and check what it contains."""
        told = msgspec.json.decode(frame)
        if told["type"] == "session.opened":
            self.opened = told
            turn_ids = {int(turn["turn_id"]) for turn in told["turns"]}
            erased = turn_ids & self.world.announced_erased
            assert not erased, "a turn announced as erased is shown"
            assert not self.retired_before, "a retired companion was opened"
        return True

    def close(self, code: int, reason: str) -> None:
        """Record the first close code."""
        self.closed = self.closed or code


@dataclass
class World:
    """What is stored, what was announced of it, and the source of randomness."""

    rng: random.Random
    settings: Settings
    metrics: Metrics
    turns: dict[int, list[Turn]] = field(default_factory=dict)
    versions: Counter[int] = field(default_factory=Counter)
    removals: Counter[int] = field(default_factory=Counter)
    revocations: list[AccessRevoked] = field(default_factory=list)
    erased: set[int] = field(default_factory=set)
    announced_erased: set[int] = field(default_factory=set)
    retired: bool = False
    last_announcement_at: float = 0.0
    listener_outages: int = 0
    erase_during_read: Callable[[int], None] = lambda _: None
    listeners: list[Listener] = field(default_factory=list)
    tokens: list[tuple[str, str | None]] = field(default_factory=lambda: [("ana", "none")])
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Give every user some turns."""
        for number, _ in enumerate(USERS, 1):
            self.turns[number] = [
                Turn(10 * number + index, "user", f"m{index}", "completed", "x", datetime.now(UTC))
                for index in range(6)
            ]

    async def query(self) -> None:
        """Wait like a query, and sometimes fail."""
        await asyncio.sleep(self.rng.uniform(0.0, 0.02))
        if self.rng.random() < 0.04:
            raise StorageUnavailable("Simulated failure.")

    async def wait(self) -> None:
        """Wait for an answer in transit."""
        await asyncio.sleep(self.rng.uniform(0.0, 0.02))

    # The companion store.
    async def find(self, slug: str) -> Companion:
        """Return a snapshot of the companion."""
        await self.query()
        retired = self.retired
        await self.wait()
        return Companion(1, slug, "Wren", "", "You are Wren.", CompanionSettings(), 1, retired)

    find_open = CompanionStore.find_open

    async def get(self, _: int) -> Companion:
        """Return the companion by its id."""
        return await self.find("wren")

    async def settings_with_companion(self, *_: object) -> RelationshipSettings:
        """Return a relationship's own settings, of which there are none."""
        await self.query()
        return RelationshipSettings()

    # The revocation store.
    async def is_revoked(self, *token: Any) -> bool:
        """Return whether a token was revoked as of a snapshot."""
        await self.query()
        revoked = any(revocation.covers(*token) for revocation in self.revocations)
        await self.wait()
        return revoked

    async def revoked_since(self, _: datetime) -> list[AccessRevoked]:
        """Return every revocation."""
        return list(self.revocations)

    # The turn store.
    async def open_session(self, user: str, *_: object) -> OpenedSession:
        """Return the only session of a user."""
        await self.query()
        number = USERS.index(user) + 1
        version = self.versions[number]
        await self.wait()
        return OpenedSession(
            UUID(int=number),
            number,
            number,
            version,
            0,
            RelationshipSettings(),
            version,
            False,
            False,
        )

    async def messages_before(self, *_: object) -> list[str]:
        """Return no messages."""
        await self.query()
        return []

    async def session_turns(self, relationship_id: int, *_: object) -> list[Turn]:
        """Return a snapshot of the turns."""
        await self.query()
        turns = list(self.turns[relationship_id])
        if self.rng.random() < 0.1:
            self.erase_during_read(relationship_id)
        await self.wait()
        return turns

    recent_turns = session_turns

    async def announce(self, announcement: SessionTaken) -> None:
        """Accept a session's announcement."""
        await self.query()

    async def load(self, *_: object) -> RelationshipLayers:
        """Load the layers of a relationship, which has no records."""
        await self.query()
        return RelationshipLayers(LayersState(1, 0, 0), [], cast("Any", None), estimate_tokens)

    async def versions_of(self, ids: list[int]) -> dict[int, VersionsInForce]:
        """Return the versions of relationships as of a snapshot."""
        await self.query()
        versions = {
            key: VersionsInForce(
                RelationshipVersions(
                    key, self.versions[key], 0, self.removals[key], self.versions[key], 0, False, ""
                ),
                CompanionVersions(1, 1, 0),
            )
            for key in ids
        }
        await self.wait()
        return versions


async def no_state(*_: object) -> tuple[SessionState, int]:
    """Return an empty session state."""
    return NO_STATE, 0


class Server:
    """The registry and the handshake on simulated stores."""

    def __init__(self, world: World) -> None:
        self.world = world
        clock = VirtualClock()
        stores = cast("Any", world)
        world.erase_during_read = lambda number: self.erase(USERS[number - 1])
        self.clock = clock
        self.authority = Authority(world.settings, stores, clock)
        store = cast("Any", SimpleNamespace(versions=world.versions_of))
        freshness = Freshness(store, lambda: not world.listener_outages, clock, world.metrics)
        supervisor = Supervisor(clock, world.metrics, world.rng)
        scenes = SimpleNamespace(
            on_announcement=lambda _: None,
            close=lambda *_: None,
            triggers=SimpleNamespace(start=lambda: None),
            stop=lambda: asyncio.sleep(0),
        )
        self.registry = SessionRegistry(
            RuntimeServices(world.settings, clock, world.metrics, supervisor),
            self.authority,
            Membership(cast("Any", None), clock, supervisor),
            cast("Any", scenes),
        )
        listeners = [freshness.on_announcement, self.registry.on_announcement]
        freshness.receiver = AnnouncementReceiver(
            listeners, freshness.hint, self.registry.catch_up, world.metrics
        )
        stub = cast(
            "Any",
            SimpleNamespace(wake=lambda: None, load=lambda *_: None, word_share=lambda _: None),
        )
        states = cast("Any", SimpleNamespace(read=no_state))
        embedder = cast("Any", SimpleNamespace(manifest=SimpleNamespace(fingerprint="simulated")))
        layers = cast("Any", SimpleNamespace(load=world.load, get=lambda _: None))
        self.model = InProcessModel(lambda: 0.0, lambda _: ["Yes"])
        self.services = SessionServices(
            runtime=RuntimeServices(world.settings, clock, world.metrics, supervisor),
            freshness=freshness,
            authority=self.authority,
            stores=cast(
                "Any",
                SimpleNamespace(
                    companions=stores,
                    relationships=stores,
                    turns=stores,
                    states=states,
                ),
            ),
            live_settings=LiveSettings(stores.get, stores, clock),
            context=ContextServices(
                embedder=embedder,
                index=stub,
                layer_cache=layers,
                library=layers,
                builder=stub,
                cache=ContextCache(10, 1_000_000, 60.0, clock),
                lorebooks=Lorebooks(),
            ),
            chat_models=SingleChatModel(world.settings, self.model, "off"),
            deduplicator=Deduplicator(Precedence()),
            after_reply=AfterReplyServices(
                behaviours=stub,
                ingester=stub,
                access_counts=stub,
                background_worker=stub,
            ),
            exchanges=stub,
        )
        self.handshake = Handshake(self.services, self.registry)

    def token(self, user: str) -> str:
        """Mint a token of a user with a clock that is somewhat wrong."""
        key = self.authority._keys.signing_key(None)
        assert key is not None
        now = self.clock.now().timestamp()
        issued_at = now + self.world.rng.uniform(-60.0, 29.0)
        token_id = str(len(self.world.tokens))
        self.world.tokens.append((user, token_id))
        claims = {"sub": user, "iat": issued_at, "exp": now + _EXPIRES_S, "jti": token_id}
        return mint(claims, key)

    async def open(self, user: str, resume: Resume | None) -> None:
        """Open or resume a session, and sometimes disconnect."""
        listener = Listener(self.world, self.world.retired)
        self.world.listeners.append(listener)
        address_slot = AddressSlot(AddressLimits(1, ()), "")
        message = SessionOpen("wren", self.token(user), resume=resume)
        try:
            session = await self.handshake.open(message, None, listener, address_slot)
        except ForemindError as error:
            assert listener.opened is None, "a failed open must not send session.opened"
            self.world.outcomes[error.code] += 1
            return
        self.world.outcomes["opened"] += 1
        assert listener.opened is not None
        assert isinstance(session, Session)
        self.check_limits()
        if self.world.rng.random() < 0.5:
            await self.world.wait()
            listener.left = True
            self.registry.detach(session, listener)

    def announce_later(self, announcement: Announcement) -> None:
        """Deliver an announcement after a random delay; announcements keep their order."""
        loop, world = asyncio.get_running_loop(), self.world
        deliver_at = loop.time() + world.rng.uniform(0.0, 0.03)
        world.last_announcement_at = max(world.last_announcement_at, deliver_at)
        loop.call_at(world.last_announcement_at, self._announce, announcement)

    def _announce(self, announcement: Announcement) -> None:
        if self.world.listener_outages:
            return
        assert self.services.freshness.receiver is not None
        self.services.freshness.receiver.deliver(announcement)
        if isinstance(announcement, MemoriesForgotten):
            self.world.announced_erased.update(announcement.turn_ids or ())

    def erase(self, user: str) -> None:
        """Erase a turn of a user."""
        number = USERS.index(user) + 1
        if not self.world.turns[number]:
            return
        turn = self.world.turns[number].pop(0)
        self.world.erased.add(turn.id)
        self.world.versions[number] += 1
        self.world.removals[number] += 1
        version, removals = self.world.versions[number], self.world.removals[number]
        self.announce_later(MemoriesForgotten(number, version, 0, version, (turn.id,), removals))

    def ingest(self, user: str) -> None:
        """Store a memory of a user."""
        number = USERS.index(user) + 1
        self.world.versions[number] += 1
        version = self.world.versions[number]
        self.announce_later(MemoryAnnouncement(number, None, "user", 0.5, 1, "event", version))

    async def read(self) -> None:
        """Reload the turns of all sessions, as before an answer."""
        await self.world.wait()
        reads = [session.read_recent_turns() for session in self.registry._all()]
        for failure in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(failure, list | StorageUnavailable)

    def revoke(self, user: str) -> None:
        """Revoke all tokens of a user, or a single token."""
        tokens = self.world.tokens[-3:]
        token = self.world.rng.choice(tokens) if self.world.rng.random() < 0.7 else None
        until = self.clock.now() + timedelta(seconds=CLOCK_SKEW_S)
        revocation = AccessRevoked(*(token or (user, None)), until)
        self.world.revocations.append(revocation)
        self.announce_later(revocation)

    def check_limits(self) -> None:
        """Check the session limits, in total and per user."""
        sessions = self.registry._all()
        assert len(sessions) <= self.world.settings.max_sessions
        by_user = Counter(session.principal.user_id for session in sessions)
        assert max(by_user.values(), default=0) <= self.world.settings.max_sessions_per_user

    def check_settled(self) -> None:
        """Check the final state, once everything is announced and no session is pending."""
        registry, world = self.registry, self.world
        sessions = registry._all()
        assert registry._places.total == len(sessions), "unused places are released"
        by_user = Counter(session.principal.user_id for session in sessions)
        assert registry._places.by_user == by_user
        assert not registry._pending
        for session in sessions:
            self._check_session(session)
        if registry.draining:
            assert not sessions, "pending sessions were refused"
        attached = {id(session._stream.listener) for session in sessions}
        for listener in world.listeners:
            disconnected = listener.left or listener.closed is not None
            if listener.opened is not None and not disconnected:
                assert id(listener) in attached, "a connected client has a session"

    def _check_session(self, session: Session) -> None:
        world, principal = self.world, session.principal
        turn_ids = {turn.id for turn in session._conversation.history.turns}
        assert not turn_ids & world.erased, "no session contains an erased turn"
        assert session._session_policy._memory_version == world.versions[session.relationship_id]
        assert not any(
            revocation.covers(principal.user_id, principal.token_id, principal.issued_at)
            for revocation in world.revocations
        ), "no session has a revoked token"


async def live(world: World) -> None:
    """Run a server for some seconds: many sessions open, things change, everything settles."""
    server = Server(world)
    tasks: list[asyncio.Task[None]] = []
    async with server.registry:
        for _ in range(world.rng.randrange(5, 30)):
            await _act(server, tasks)
        await asyncio.sleep(10.0)
        for task in tasks:
            assert task.done(), "no task waits forever"
            if not task.cancelled():
                task.result()
        server.check_settled()
        server.check_limits()
    assert server.registry._places.total == 0
    assert not server.registry._places.by_user


_ACTIONS = (
    "open", "cancel", "erase", "ingest", "read", "revoke", "retire", "outage", "drain", "wait",
)  # fmt: skip
_WEIGHTS = (30, 4, 6, 3, 3, 3, 0.5, 0.5, 0.3, 6)


async def _act(server: Server, tasks: list[asyncio.Task[None]]) -> None:
    """Do something random; what it starts is appended to `tasks`."""
    world, rng = server.world, server.world.rng
    call_later = asyncio.get_running_loop().call_later
    action = rng.choices(_ACTIONS, _WEIGHTS)[0]
    user = rng.choice(USERS)
    match action:
        case "open":
            for _ in range(rng.choice((1, 1, 2, 8))):
                number = USERS.index(user) + 1
                resume = Resume(str(UUID(int=number)), rng.choice((0, 1, 2, 9)))
                opening = server.open(user, resume if rng.random() < 0.4 else None)
                tasks.append(asyncio.create_task(opening))
        case "cancel" if tasks:
            rng.choice(tasks).cancel()
        case "erase":
            for _ in range(rng.choice((1, 1, 3))):
                call_later(rng.uniform(0.0, 0.1), server.erase, user)
            tasks.append(asyncio.create_task(server.read()))
        case "ingest":
            call_later(rng.uniform(0.0, 0.1), server.ingest, user)
        case "read":
            tasks.append(asyncio.create_task(server.read()))
        case "revoke":
            call_later(rng.uniform(0.0, 0.1), server.revoke, user)
        case "retire":
            world.retired = True
        case "outage":
            tasks.append(asyncio.create_task(_listener_outage(server)))
        case "drain":
            tasks.append(asyncio.create_task(server.registry.drain(0.1)))
        case _:
            await asyncio.sleep(rng.uniform(0.0, 0.1))


async def _listener_outage(server: Server) -> None:
    """Lose the notification connection for a while, then catch up on what was missed."""
    server.world.listener_outages += 1
    await server.world.wait()
    server.world.listener_outages -= 1
    while True:
        try:
            await server.services.freshness.catch_up()
            return await server.registry.catch_up()
        except StorageUnavailable:
            continue
