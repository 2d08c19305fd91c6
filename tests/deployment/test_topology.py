"""The services of deploy/compose.yaml serve players through the proxy, also while gateways go."""

import asyncio
import contextlib
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import httpx2
import jwt
import pytest
import pytest_asyncio

from foremind.cluster.ring import owner_of, relationship_key
from foremind_client import Conversation, Identity, route
from foremind_models import ConvertedEncoder
from tests.conftest import PATIENCE, eventually, eventually_async
from tests.deployment.certificate import write_certificate
from tests.deployment.compose import new_variables, services
from tests.deployment.topology import GATEWAYS, Topology, start_nats, start_prometheus, topology

pytestmark = [pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, model: ConvertedEncoder
) -> AsyncIterator[Topology]:
    """Everything, with a certificate that clients here trust."""
    folder = tmp_path_factory.mktemp("services")
    certificate = tmp_path_factory.mktemp("tls") / "site.pem"
    write_certificate(certificate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        # A player who takes the way to the owner for blocked is served elsewhere, and stays there.
        patch.setattr(route, "_TOLD_TIMEOUT_S", PATIENCE)
        variables = new_variables(certificate) | {"OPERATOR_NETWORKS": "192.0.2.1 192.0.2.16/28"}
        async with topology(folder, services(variables), certificate) as running:
            yield running


class Player:
    """A player who types before each message, over the proxy; keeps every event."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.events: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    def type(self, text: str) -> None:
        """Type a message, key by key."""
        for length in range(1, len(text) + 1):
            self._conversation.type(text[:length])

    async def say(self, text: str) -> dict[str, Any]:
        """Type a message and send it; return the end of the reply."""
        self.type(text)
        async with asyncio.timeout(PATIENCE):
            return await self._conversation.say(text)

    async def recall(self, text: str) -> list[str]:
        """Type a message; return what is recalled before it is sent."""
        self.type(text)
        await eventually(lambda: self._context_of(text) is not None)
        context = self._context_of(text)
        assert context is not None
        return [memory["content"] for memory in context["memories"]]

    def received(self, type_: str) -> bool:
        """Tell whether there was an event of a type."""
        return any(event["type"] == type_ for event in self.events)

    def _context_of(self, text: str) -> dict[str, Any] | None:
        contexts = (event for event in self.events if event["type"] == "context.ready")
        return next((event for event in contexts if event["draft"] == text), None)

    async def close(self) -> None:
        """Stop reading events."""
        self._reading.cancel()
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        async for event in self._conversation.events():
            self.events.append(event)


def token(running: Topology, user: str, *scopes: str) -> str:
    """Return a token that the game server signs with the secret in .env."""
    secret = running.services["gateway-1"].environment["FOREMIND_AUTH_SECRET"]
    claims = {"sub": user, "name": user.title(), "exp": time.time() + 3600}
    return jwt.encode(claims | ({"scopes": list(scopes)} if scopes else {}), secret)


@asynccontextmanager
async def player(running: Topology, user: str) -> AsyncIterator[Player]:
    """Open a conversation at the proxy's door."""
    url = f"wss://{running.address(':8443')}/v1/ws"
    identity = Identity("wren", token=token(running, user))
    async with Conversation(url, identity, first_retry_s=0.1, contexts=True) as conversation:
        playing = Player(conversation)
        try:
            yield playing
        finally:
            await playing.close()


async def sessions(running: Topology) -> dict[str, int]:
    """Return how many sessions each gateway has, by its metrics."""
    found = {}
    headers = {"Authorization": f"Bearer {token(running, 'operator', 'metrics')}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        for gateway in GATEWAYS:
            address = running.address(f"{gateway}:8770")
            text = (await http.get(f"http://{address}/metrics")).text
            match = re.search(r"^foremind_sessions (\S+)", text, re.M)
            assert match is not None, text
            found[gateway] = int(float(match[1]))
    return found


async def test_a_rolling_update_interrupts_nobody(running: Topology) -> None:
    """Each gateway drains and comes back while players talk; every message is stored once.

    Before, each player is at the gateway that owns the relationship, whichever the proxy chose.
    """
    users = ("ana", "cleo", "finn", "dan")  # a gateway owns three of them
    before = await sessions(running)
    async with contextlib.AsyncExitStack() as stack:
        players = [await stack.enter_async_context(player(running, user)) for user in users]
        for playing, user in zip(players, users, strict=True):
            await playing.say(f"I promise to call my boat {user} Zephyrine")
        owners = Counter(owner_of(relationship_key(user, "wren"), GATEWAYS) for user in users)
        assert sorted(owners.values()) == [1, 3]

        async def are_at_owners() -> bool:
            after = await sessions(running)
            return {name: after[name] - before[name] for name in GATEWAYS} == owners

        await eventually_async(are_at_owners)
        for gateway in GATEWAYS:
            talks = [asyncio.create_task(talk(playing, gateway)) for playing in players]
            assert await running.stop(gateway) == 0
            await asyncio.gather(*talks)
            await running.start_gateway(gateway)
            await eventually(partial(is_up, running, gateway))
        for playing, user in zip(players, users, strict=True):
            recalled = await playing.recall("What will I call my boat?")
            assert f"I promise to call my boat {user} Zephyrine" in recalled
    expected = [f"I promise to call my boat {user} Zephyrine" for user in users]
    expected += [text for gateway in GATEWAYS for text in topics(gateway)] * len(users)
    assert sorted(await stored(running, *users)) == sorted(expected)


async def test_a_killed_gateway_interrupts_nobody(running: Topology) -> None:
    """Its players talk on at the other, and nothing that was accepted is lost or doubled."""
    before = await sessions(running)
    async with player(running, "eve") as playing:
        await playing.say("I promise to call my boat Zephyrine")
        await eventually(lambda: playing.received("memory.stored"))
        after = await sessions(running)
        (gateway,) = [name for name in GATEWAYS if after[name] > before[name]]
        await running.stop(gateway, signal.SIGKILL)
        await talk(playing, "afterwards")
        assert await playing.recall("What will I call my boat?")
    said = ["I promise to call my boat Zephyrine", *topics("afterwards")]
    assert sorted(await stored(running, "eve")) == sorted(said)
    await running.start_gateway(gateway)


async def test_gateways_talk_over_nats(running: Topology) -> None:
    """Both are connected, with the password of the installation; away, it is missed by both."""
    await eventually_async(partial(_nats_is, running, lambda state: state == "ok"))
    await running.stop("nats")
    async with player(running, "gil") as playing:
        await eventually_async(partial(_nats_is, running, lambda state: state != "ok"))
        await talk(playing, "without NATS")
    await start_nats(running)
    await eventually_async(partial(_nats_is, running, lambda state: state == "ok"))


async def _nats_is(running: Topology, fits: Callable[[str], bool]) -> bool:
    """Tell whether every gateway is ready, and what each says of announcements fits."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answers = [
            await http.get(f"http://{running.address(f'{gateway}:8770')}/readyz")
            for gateway in GATEWAYS
        ]
    return all(answer.is_success and fits(answer.json()["announcements"]) for answer in answers)


async def test_the_door_is_the_only_way_in(running: Topology) -> None:
    """It serves HTTPS, keeps operators' pages inside, and logs no text that was typed."""
    door = f"https://{running.address(':8443')}"
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        plain = await http.get(f"http://{running.address(':8080')}/healthz")
        assert plain.status_code == 308
        assert plain.headers["location"].startswith("https://")
        answer = await http.get(f"{door}/healthz")
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers
        for path in ("/metrics", "/readyz", "/v1/admin/sessions", "/v1/%61dmin/sessions"):
            answer = await http.get(door + path, headers={"X-Forwarded-For": "192.0.2.1"})
            assert (answer.status_code, answer.content) == (404, b""), path
        await http.get(f"{door}/v1/relationships/1/context?draft=Zephyrine")
        assert (await http.get(f"{door}/v1/companions")).status_code == 401
    await eventually(lambda: b"/v1/companions" in running.output["proxy"])
    assert b"/v1/relationships/1/context" in running.output["proxy"]
    assert b"Zephyrine" not in running.output["proxy"]


async def test_prometheus_reads_both_gateways(running: Topology) -> None:
    """With the token made at the start; without one it would be refused."""
    await start_prometheus(running)
    address = running.address("prometheus:9090")

    async def both_are_up() -> bool:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            answer = await http.get(
                f"http://{address}/api/v1/query", params={"query": 'up{job="foremind"}'}
            )
        found = answer.json()["data"]["result"]
        return [sample["value"][1] for sample in found] == ["1", "1"]

    await eventually_async(both_are_up)


def topics(about: str) -> list[str]:
    """Return what players talk about."""
    return [f"I decided to plant tree {number} for {about}" for number in range(5)]


async def talk(playing: Player, about: str) -> None:
    """Say some things, one after another; each is answered."""
    for text in topics(about):
        done = await playing.say(text)
        # A message that was answered before its connection broke is only acknowledged.
        assert done["type"] in ("response.done", "message.accepted"), done


def is_up(running: Topology, gateway: str) -> bool:
    """Tell whether the last that the proxy logged of a gateway is that it came up."""
    states = re.findall(rb"/%b is (UP|DOWN)" % gateway.encode(), running.output["proxy"])
    return bool(states) and states[-1] == b"UP"


async def stored(running: Topology, *users: str) -> list[str]:
    """Return everything that users said, as the owner of the tables reads it."""
    given = running.services["maintenance"].environment
    owner = await asyncpg.connect(running.here(given["FOREMIND_DATABASE_URL"]))
    try:
        rows = await owner.fetch(
            "SELECT content FROM turns JOIN users ON users.id = user_id "
            "WHERE speaker = 'user' AND external_id = ANY($1)",
            list(users),
        )
    finally:
        await owner.close()
    return [row["content"] for row in rows]
