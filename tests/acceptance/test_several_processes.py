"""Two processes on one database: what one does is in force in the other, however it is told."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from foremind.cluster.freshness import RECONCILE_S
from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from foremind_client import Client, Closed
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_eval.processes.nats_server import NatsServer
from tests.acceptance.test_identity import close_code, open_session_with, revoke
from tests.acceptance.test_message_path import (
    metric_value,
    type_text,
    wait_until_processed,
)
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    eventually_async,
    owner_of,
)
from tests.unit.auth.test_access_tokens import SECRET, token

BOAT = "I promise to call my boat Zephyrine"
QUESTION = "What do I promise to call my boat?"
NOWHERE = "nats://127.0.0.1:1"


@dataclass
class Cluster:
    """How two processes tell each other things, and how many of them were started."""

    start: StartServer
    urls: tuple[str | None, str | None]

    async def both(self, clock: Any = None, **changes: object) -> list[RunningServer]:
        """Start a server that changes something, and one that is to follow."""
        return [await self.start(clock, nats_url=url, **changes) for url in self.urls]


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    """A real NATS server."""
    with NatsServer() as server:
        yield server


#: By PostgreSQL; by NATS; by NATS, but the process dies, as it were, between its commit and
#: publishing, because it never reaches NATS; and with NATS away for both.
@pytest.fixture(params=["postgres", "nats", "unpublished", "away"])
async def cluster(
    request: pytest.FixtureRequest, start: StartServer, nats: NatsServer
) -> AsyncIterator[Cluster]:
    """Two processes, and what there is between them."""
    urls: dict[str, tuple[str | None, str | None]] = {
        "postgres": (None, None),
        "nats": (nats.url, nats.url),
        "unpublished": (NOWHERE, nats.url),
        "away": (NOWHERE, NOWHERE),
    }
    yield Cluster(start, urls[request.param])


async def request(server: RunningServer, method: str, path: str, body: object = None) -> Any:
    """Send a request on behalf of Ana; return the JSON of the response."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.request(
            method, f"http://127.0.0.1:{server.port}{path}", params={"user": "ana"}, json=body
        )
    assert response.status_code < 300, response.text
    return response.json()


async def reply_to(client: Client, text: str) -> str:
    """Send a message; return the reply."""
    await client.send(text)
    return str((await client.expect("response.done"))["text"])


async def remember(server: RunningServer, client: Client, text: str) -> dict[str, Any]:
    """Send a message; return its events by type once a process, whichever it is, ingested it."""

    async def ingested() -> bool:
        waiting = "SELECT count(*) FROM background_steps WHERE step = 'ingest'"
        return not await owner_of(server.app.core).fetchval(waiting)

    await client.send(text)
    events = await client.expect_all("message.accepted", "response.created", "response.done")
    await eventually_async(ingested)
    return events


def telling(*what: str) -> Script:
    """A model that tells which of some things stand in its prompt, by their numbers.

    Of a reply that is made anew, both requests may reach a model, in whichever order.
    """

    def reply(request: Any) -> list[str]:
        return [str([number for number, thing in enumerate(what) if thing in str(request)])]

    return Script(reply=reply)


async def forget_everything(server: RunningServer) -> None:
    """Erase all memories of Ana."""
    (relationship,) = await request(server, "GET", "/v1/relationships")
    await request(server, "DELETE", f"/v1/relationships/{relationship['id']}/memories")


async def readiness(server: RunningServer) -> tuple[int, str]:
    """Return the status of `/readyz`, and what it says of announcements."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.get(f"http://127.0.0.1:{server.port}/readyz")
    return response.status_code, response.json()["announcements"]


async def test_a_reply_reflects_what_another_process_remembered_before_the_message(
    cluster: Cluster,
) -> None:
    """At the very next Enter, whether or not the announcement has arrived."""
    first, second = await cluster.both()
    on_first, on_second = await first.session(), await second.session()
    assert "Zephyrine" not in await reply_to(on_second, QUESTION)
    await remember(first, on_first, BOAT)
    assert "Zephyrine" in await reply_to(on_second, QUESTION)


async def test_a_prepared_context_is_not_served_once_another_process_forgot(
    cluster: Cluster,
) -> None:
    """It was announced to the player before; the reply is made without it."""
    first, second = await cluster.both()
    on_first, on_second = await first.session(), await second.session()
    await remember(first, on_first, BOAT)
    await type_text(on_second, second, QUESTION)
    ready = await on_second.expect("context.ready")
    while ready["draft"] != QUESTION:
        ready = await on_second.expect("context.ready")
    await forget_everything(first)
    assert "Zephyrine" not in await reply_to(on_second, QUESTION)


async def test_a_prompt_has_nothing_that_another_process_forgot(cluster: Cluster) -> None:
    """Neither as a memory nor in the history of the session that both share."""
    async with scripted_model(telling("Zephyrine")) as model:
        first, second = await cluster.both(llm_url=model.url)
        on_first, on_second = await first.session(), await second.session()
        await remember(first, on_first, BOAT)
        assert await reply_to(on_second, "Hello") == "[0]"
        await forget_everything(first)
        answer = ""
        while not answer:  # one that was begun before the other process heard is broken off
            answer = await reply_to(on_second, "Hello again")
        assert answer == "[]"


async def test_a_prompt_has_the_turns_and_the_state_of_another_process(cluster: Cluster) -> None:
    """Both processes have a window of one session."""
    async with scripted_model(telling("The rope is red", "Mend the sail")) as model:
        first, second = await cluster.both(llm_url=model.url)
        on_first, on_second = await first.session(), await second.session()
        await reply_to(on_second, "Hello")
        await reply_to(on_first, "The rope is red")
        await on_first.send_raw({"type": "session.update", "state": {"task": "Mend the sail"}})
        await on_first.expect("session.updated")
        assert await reply_to(on_second, "And now?") == "[0, 1]"


async def test_settings_of_another_process_are_in_force_for_the_reply(cluster: Cluster) -> None:
    """Those of the companion and of the relationship."""
    async with scripted_model(telling("You mend sails.", "'temperature': 0.25")) as model:
        first, second = await cluster.both(llm_url=model.url)
        on_second = await second.session()
        await reply_to(on_second, "Hello")
        put = first.app.core.stores.companions.put
        await put(CompanionFile("wren", "Wren", "You mend sails.", settings=CompanionSettings()))
        assert await reply_to(on_second, "And now?") == "[0]"
        (relationship,) = await request(first, "GET", "/v1/relationships")
        path = f"/v1/relationships/{relationship['id']}/config"
        await request(first, "PATCH", path, {"settings": {"llm_temperature": 0.25}})
        assert await reply_to(on_second, "And then?") == "[0, 1]"


async def test_nothing_is_remembered_once_consent_was_withdrawn_elsewhere(cluster: Cluster) -> None:
    """From the very next message on."""
    first, second = await cluster.both()
    settings = CompanionSettings(consent="required")
    for server in (first, second):
        await server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
        )
    client = await second.connect()
    await client.send_raw(
        {"type": "session.open", "companion": "wren", "user": {"id": "ana", "name": "Ana"},
         "consent": True}
    )  # fmt: skip
    await client.expect("session.opened")
    assert (await remember(second, client, BOAT))["message.accepted"]["remembered"]
    (relationship,) = await request(first, "GET", "/v1/relationships")
    path = f"/v1/relationships/{relationship['id']}/config"
    await request(first, "PATCH", path, {"consent": False})
    await client.send("I promise that my dog is called Scout")
    assert not (await client.expect("message.accepted"))["remembered"]


async def test_a_revoked_token_stores_no_message(cluster: Cluster) -> None:
    """Nor is it answered: the connection ends with 4401, as if it had been announced."""
    clock = ManualClock()
    first, second = await cluster.both(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    client = await open_session_with(second, token(iat=now - 5, exp=now + 3600))
    await revoke(first, clock, user="ana")
    with suppress(Closed):  # it may have been announced by now
        await client.send(BOAT)
    assert await close_code(client) == 4401
    assert not await owner_of(second.app.core).fetchval("SELECT count(*) FROM turns")


async def test_what_is_announced_before_enter_follows_within_seconds(cluster: Cluster) -> None:
    """Without any announcement, versions are compared before use, or every few seconds."""
    clock = ManualClock()
    first, second = await cluster.both(clock)
    on_first, on_second = await first.session(), await second.session()
    await remember(first, on_first, BOAT)
    await clock.advance(RECONCILE_S)
    for expected in (1, 0):
        async with asyncio.timeout(PATIENCE):
            while True:  # by NOTIFY or NATS it takes a moment
                await on_second.draft("")
                await on_second.draft(QUESTION)
                await wait_until_processed(on_second)
                await clock.advance(1)
                ready = await on_second.expect("context.ready")
                if len(ready["memories"]) == expected:
                    break
        if expected:
            await forget_everything(first)
            await clock.advance(RECONCILE_S)


async def test_the_sessions_of_a_user_erased_elsewhere_end(cluster: Cluster) -> None:
    """Within seconds, even if nobody announced it."""
    clock = ManualClock()
    first, second = await cluster.both(clock)
    client = await second.session()
    await reply_to(client, "Hello")
    await request(first, "DELETE", "/v1/users/ana")
    closing = asyncio.create_task(close_code(client))
    while not closing.done():
        await clock.advance(1)
        await asyncio.sleep(0.01)
    assert closing.result() == 4403


async def test_nats_is_killed_and_comes_back(start: StartServer, nats: NatsServer) -> None:
    """Meanwhile nothing stale is served and `/readyz` says so; afterwards announcements arrive."""
    first, second = await start(nats_url=nats.url), await start(nats_url=nats.url)
    on_first, on_second = await first.session(), await second.session()
    await remember(first, on_first, BOAT)
    assert "Zephyrine" in await reply_to(on_second, QUESTION)
    assert [await readiness(server) for server in (first, second)] == [(200, "ok")] * 2
    nats.kill()
    await eventually(lambda: not first.app.core.bus.trusted and not second.app.core.bus.trusted)
    status, says = await readiness(second)
    assert status == 200
    assert says.startswith("degraded: ")
    await forget_everything(first)
    await type_text(on_second, second, QUESTION)
    while (ready := await on_second.expect("context.ready"))["draft"] != QUESTION:
        pass
    assert ready["memories"] == []
    assert "Zephyrine" not in await reply_to(on_second, QUESTION)
    nats.start()
    await eventually(lambda: first.app.core.bus.trusted and second.app.core.bus.trusted)
    assert [await readiness(server) for server in (first, second)] == [(200, "ok")] * 2
    before = metric_value(second, "foremind_announcements_total", event="received")
    await remember(first, on_first, BOAT)
    await eventually(
        lambda: metric_value(second, "foremind_announcements_total", event="received") > before
    )


async def test_no_announcement_contains_what_was_written_or_a_name(
    start: StartServer, nats: NatsServer
) -> None:
    """Identifiers, versions and scores travel over NATS, and nothing else."""
    import nats as client_library  # noqa: PLC0415 - the fixture has the same name

    server = await start(nats_url=nats.url)
    listener = await client_library.connect(nats.url)
    heard: list[str] = []

    async def hear(message: Any) -> None:
        heard.append(message.data.decode())

    await listener.subscribe("foremind.>", cb=hear)
    await listener.flush()
    client = await server.session("u17")
    await remember(server, client, BOAT)
    await client.send_raw({"type": "session.update", "state": {"task": "Mend the sail"}})
    await client.expect("session.updated")
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        await http.delete(f"http://127.0.0.1:{server.port}/v1/users/u17", params={"user": "u17"})
    await eventually(lambda: any('"deleted"' in message for message in heard))
    await listener.close()
    everything = "\n".join(heard)
    assert '"judged"' in everything
    for written in ("Zephyrine", "boat", "sail", "U17"):
        assert written not in everything
