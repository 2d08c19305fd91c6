"""Sessions that open while everything changes: whatever waits, waits for as long as is drawn.

Handshake, registry, sessions and authority are the real ones. What they read is drawn: how long it
takes, as of which moment it is, whether it fails, and what others do meanwhile.
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

from foremind.auth.access_tokens import CLOCK_SKEW_S, mint
from foremind.auth.authority import Authority
from foremind.domain.announcements import (
    AccessRevoked,
    MemoriesForgotten,
    MemoryAnnouncement,
    SessionTaken,
)
from foremind.domain.companion import Companion, CompanionSettings, RelationshipSettings
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.domain.session_state import NO_STATE, SessionState
from foremind.domain.settings import Settings
from foremind.domain.turn import OpenedSession, Turn
from foremind.gateway.address_limits import AddressLimits, AddressSlot
from foremind.gateway.handshake import Handshake
from foremind.gateway.live_settings import LiveSettings
from foremind.gateway.protocol.messages import Resume, SessionOpen
from foremind.gateway.session import Session
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import SessionServices
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.storage.notifications import Announcement
from foremind.testing.in_process_model import InProcessModel, SingleChatModel
from foremind.testing.virtual_time import VirtualClock
from foremind.typeahead.context_cache import ContextCache

USERS = ("ana", "bo", "cy")
_EXPIRES_S = 3600.0


@dataclass
class Listener:
    """One connection, and what it was sent."""

    world: "World"
    retired_before: bool
    opened: dict[str, Any] | None = None
    closed: int | None = None
    left: bool = False

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        """Take in an event, and look at a greeting."""
        event = msgspec.json.decode(frame)
        if event["type"] == "session.opened":
            self.opened = event
            shown = {int(each["turn_id"]) for each in event["turns"]}
            assert not shown & self.world.told_forgotten, "what is known to be forgotten is shown"
            assert not self.retired_before, "nobody opens a companion that is retired"
        return True

    def close(self, code: int, reason: str) -> None:
        """Note why."""
        self.closed = self.closed or code


@dataclass
class World:
    """What is stored, what was announced of it, and what was drawn."""

    random: random.Random
    settings: Settings
    metrics: Metrics
    turns: dict[int, list[Turn]] = field(default_factory=dict)
    versions: Counter[int] = field(default_factory=Counter)
    revocations: list[AccessRevoked] = field(default_factory=list)
    forgotten: set[int] = field(default_factory=set)
    told_forgotten: set[int] = field(default_factory=set)
    retired: bool = False
    told_at: float = 0.0
    deaf: int = 0
    meanwhile: Callable[[int], None] = lambda _: None
    listeners: list[Listener] = field(default_factory=list)
    tokens: list[tuple[str, str | None]] = field(default_factory=lambda: [("ana", "none")])
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Everybody has said something."""
        for number, _ in enumerate(USERS, 1):
            self.turns[number] = [
                Turn(10 * number + each, "user", f"m{each}", "completed", "x", datetime.now(UTC))
                for each in range(6)
            ]

    async def reading(self) -> None:
        """Wait as a query does, and fail as it may."""
        await asyncio.sleep(self.random.uniform(0.0, 0.02))
        if self.random.random() < 0.04:
            raise StorageUnavailable("It failed, as it was to.")

    async def wait(self) -> None:
        """Wait for an answer that is on its way."""
        await asyncio.sleep(self.random.uniform(0.0, 0.02))

    # The companions.
    async def find(self, slug: str) -> Companion:
        """Return the companion as of some moment."""
        await self.reading()
        retired = self.retired
        await self.wait()
        return Companion(1, slug, "Wren", "", "You are Wren.", CompanionSettings(), 1, retired)

    async def get(self, _: int) -> Companion:
        """Return it by its id."""
        return await self.find("wren")

    async def settings_with(self, *_: object) -> RelationshipSettings:
        """Return what a relationship has of its own, which is nothing."""
        await self.reading()
        return RelationshipSettings()

    # The revocations.
    async def revoked(self, *token: Any) -> bool:
        """Tell whether a token was revoked at some moment."""
        await self.reading()
        found = any(revocation.covers(*token) for revocation in self.revocations)
        await self.wait()
        return found

    async def since(self, _: datetime) -> list[AccessRevoked]:
        """Return every revocation."""
        return list(self.revocations)

    # The turns.
    async def open_session(self, user: str, *_: object) -> OpenedSession:
        """Return the one session of a user."""
        await self.reading()
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

    async def working(self, relationship_id: int, *_: object) -> list[Turn]:
        """Return what was said, as of some moment."""
        await self.reading()
        said = list(self.turns[relationship_id])
        if self.random.random() < 0.1:
            self.meanwhile(relationship_id)
        await self.wait()
        return said

    recent = working

    async def announce(self, told: SessionTaken) -> None:
        """Announce what a session says of itself."""
        await self.reading()

    async def load(self, *_: object) -> None:
        """Read what else is held of a relationship."""
        await self.reading()

    async def versions_of(self, ids: list[int]) -> dict[int, tuple[int, int]]:
        """Return the memory versions of relationships, and how often something was erased."""
        await self.reading()
        return {id_: (self.versions[id_], self.versions[id_]) for id_ in ids}


async def no_state(*_: object) -> SessionState:
    """Nothing was told of any session."""
    return NO_STATE


class Server:
    """The registry and the handshake, on what is drawn."""

    def __init__(self, world: World) -> None:
        self.world = world
        clock = VirtualClock()
        here = cast("Any", world)
        world.meanwhile = lambda number: self.forget(USERS[number - 1])
        self.clock = clock
        self.authority = Authority(world.settings, here, clock)
        store = cast("Any", SimpleNamespace(versions=world.versions_of))
        supervisor = Supervisor(clock, world.metrics, world.random)
        self.registry = SessionRegistry(
            world.settings, store, self.authority, clock, world.metrics, supervisor
        )
        nothing = cast(
            "Any",
            SimpleNamespace(
                look=lambda: None, load=lambda *_: None, is_word=lambda _: False,
            ),
        )  # fmt: skip
        states = cast("Any", SimpleNamespace(read=no_state))
        loads = cast("Any", SimpleNamespace(load=world.load, get=lambda _: None))
        self.model = InProcessModel(lambda: 0.0, lambda _: ["Yes"])
        self.services = SessionServices(
            settings=world.settings, clock=clock, metrics=world.metrics, authority=self.authority,
            companions=here, relationships=here, current=LiveSettings(here, here, clock),
            turns=here, states=states, preparer=nothing,
            prepared=ContextCache(10, 1_000_000, 60.0, clock),
            index=nothing, held=loads, library=loads, curation=nothing, afterwards=nothing,
            rememberer=nothing, uses=nothing,
            voices=SingleChatModel(world.settings, self.model, "off"), embedding="",
        )  # fmt: skip
        self.handshake = Handshake(self.services, self.registry)

    def token(self, user: str) -> str:
        """A token of a user whose minting clock is somewhat wrong."""
        key = self.authority._keys.signing(None)
        assert key is not None
        now = self.clock.now().timestamp()
        issued = now + self.world.random.uniform(-60.0, 29.0)
        one = str(len(self.world.tokens))
        self.world.tokens.append((user, one))
        claims = {"sub": user, "iat": issued, "exp": now + _EXPIRES_S, "jti": one}
        return mint(claims, key)

    async def enter(self, user: str, resume: Resume | None) -> None:
        """Open or resume a session, and perhaps leave it."""
        listener = Listener(self.world, self.world.retired)
        self.world.listeners.append(listener)
        place = AddressSlot(AddressLimits(1, ()), "")
        message = SessionOpen("wren", self.token(user), resume=resume)
        try:
            session = await self.handshake.open(message, None, listener, place)
        except ForemindError as error:
            assert listener.opened is None, "who was greeted is in"
            self.world.outcomes[error.code] += 1
            return
        self.world.outcomes["opened"] += 1
        assert listener.opened is not None
        self.check_limits()
        if self.world.random.random() < 0.5:
            await self.world.wait()
            listener.left = True
            self.registry.detach(session, listener)

    def happens(self, told: Announcement) -> None:
        """Have something announced that is stored from now on: later, and in order."""
        loop, world = asyncio.get_running_loop(), self.world
        world.told_at = max(world.told_at, loop.time() + world.random.uniform(0.0, 0.03))
        loop.call_at(world.told_at, self._announce, told)

    def _announce(self, told: Announcement) -> None:
        if self.world.deaf:
            return
        self.registry.announce(told)
        if isinstance(told, MemoriesForgotten):
            self.world.told_forgotten.update(told.turn_ids or ())

    def forget(self, user: str) -> None:
        """Forget something that a user said."""
        number = USERS.index(user) + 1
        if not self.world.turns[number]:
            return
        turn = self.world.turns[number].pop(0)
        self.world.forgotten.add(turn.id)
        self.world.versions[number] += 1
        version = self.world.versions[number]
        self.happens(MemoriesForgotten(number, version, 0, version, (turn.id,)))

    def remember(self, user: str) -> None:
        """Store a memory."""
        number = USERS.index(user) + 1
        self.world.versions[number] += 1
        version = self.world.versions[number]
        self.happens(MemoryAnnouncement(number, None, "user", 0.5, 1, "event", version))

    async def read(self) -> None:
        """Read again what was said in the sessions, as they do before they answer."""
        await self.world.wait()
        reads = [session.read_past() for session in self.registry._all()]
        for failure in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(failure, list | StorageUnavailable)

    def revoke(self, user: str) -> None:
        """Revoke what a user has, or a single token."""
        tokens = self.world.tokens[-3:]
        one = self.world.random.choice(tokens) if self.world.random.random() < 0.7 else None
        until = self.clock.now() + timedelta(seconds=CLOCK_SKEW_S)
        told = AccessRevoked(*(one or (user, None)), until)
        self.world.revocations.append(told)
        self.happens(told)

    def check_limits(self) -> None:
        """No more sessions than allowed, of all and of each user."""
        sessions = self.registry._all()
        assert len(sessions) <= self.world.settings.max_sessions
        each = Counter(session.caller.user_id for session in sessions)
        assert max(each.values(), default=0) <= self.world.settings.max_sessions_per_user

    def check_settled(self) -> None:
        """Everything was announced, nobody is on the way: what is there is as it must be."""
        registry, world = self.registry, self.world
        sessions = registry._all()
        assert registry._places == len(sessions), "a place that nobody has is free"
        assert registry._of_user == Counter(each.caller.user_id for each in sessions)
        assert not registry._openings
        for session in sessions:
            self._check_session(session)
        if registry.draining:
            assert not sessions, "whoever was on the way has been sent away"
        heard = {id(each._stream.listener) for each in sessions}
        for listener in world.listeners:
            gone = listener.left or listener.closed is not None
            if listener.opened is not None and not gone:
                assert id(listener) in heard, "whoever was greeted and is there has a session"

    def _check_session(self, session: Session) -> None:
        world, caller = self.world, session.caller
        held = {turn.id for turn in session._conversation._past.turns}
        assert not held & world.forgotten, "what is forgotten is in no session"
        assert session._terms._memory_version == world.versions[session.relationship_id]
        assert not any(
            revocation.covers(caller.user_id, caller.token_id, caller.issued_at)
            for revocation in world.revocations
        ), "a revoked token opens nothing"


async def live(world: World) -> None:
    """Some seconds of a server: many come at once, things change, everything settles."""
    draw, server = world.random, Server(world)
    tasks: list[asyncio.Task[None]] = []
    soon = asyncio.get_running_loop().call_later
    async with server.registry:
        for _ in range(draw.randrange(5, 30)):
            what = draw.choices(
                (
                    "enter",
                    "cancel",
                    "forget",
                    "remember",
                    "read",
                    "revoke",
                    "retire",
                    "gap",
                    "drain",
                    "wait",
                ),
                (30, 4, 6, 3, 3, 3, 0.5, 0.5, 0.3, 6),
            )[0]
            user = draw.choice(USERS)
            match what:
                case "enter":
                    for _ in range(draw.choice((1, 1, 2, 8))):
                        number = USERS.index(user) + 1
                        resume = Resume(str(UUID(int=number)), draw.choice((0, 1, 2, 9)))
                        wants = server.enter(user, resume if draw.random() < 0.4 else None)
                        tasks.append(asyncio.create_task(wants))
                case "cancel" if tasks:
                    draw.choice(tasks).cancel()
                case "forget":
                    for _ in range(draw.choice((1, 1, 3))):
                        soon(draw.uniform(0.0, 0.1), server.forget, user)
                    tasks.append(asyncio.create_task(server.read()))
                case "remember":
                    soon(draw.uniform(0.0, 0.1), server.remember, user)
                case "read":
                    tasks.append(asyncio.create_task(server.read()))
                case "revoke":
                    soon(draw.uniform(0.0, 0.1), server.revoke, user)
                case "retire":
                    world.retired = True
                case "gap":
                    tasks.append(asyncio.create_task(_gap(server)))
                case "drain":
                    tasks.append(asyncio.create_task(server.registry.drain(0.1)))
                case _:
                    await asyncio.sleep(draw.uniform(0.0, 0.1))
        await asyncio.sleep(10.0)
        for task in tasks:
            assert task.done(), "nobody waits for ever"
            if not task.cancelled():
                task.result()
        server.check_settled()
        server.check_limits()
    assert server.registry._places == 0
    assert not server.registry._of_user


async def _gap(server: Server) -> None:
    """The line that announcements come over is away for a while; what is missed is read then."""
    server.world.deaf += 1
    await server.world.wait()
    server.world.deaf -= 1
    while True:
        try:
            return await server.registry.catch_up()
        except StorageUnavailable:
            continue
