"""Who may enter, over real sockets: tokens, scopes, their end."""

import asyncio
import time

import httpx2
import pytest

from foremind.client import Client, Closed
from foremind.testing.clock import ManualClock
from tests.conftest import RunningServer, StartServer, owner_of
from tests.unit.identity.test_tokens import SECRET, token


async def entered(server: RunningServer, signed: str, **more: str) -> Client:
    """A client with an open session."""
    client = await server.connect(**more)
    opened = await client.open_session("wren", token=signed)
    assert opened["type"] == "session.opened", opened
    return client


async def get(server: RunningServer, path: str, signed: str) -> httpx2.Response:
    """The answer to an HTTP request."""
    async with httpx2.AsyncClient() as http:
        return await http.get(
            f"http://127.0.0.1:{server.port}{path}", headers={"authorization": f"Bearer {signed}"}
        )


async def closed_with(client: Client) -> int:
    """The code that a connection is closed with."""
    with pytest.raises(Closed) as caught:
        async with asyncio.timeout(10):
            while True:
                await client.next_event()
    return caught.value.code


async def test_a_token_may_come_as_a_subprotocol(start: StartServer) -> None:
    """The one place besides the message where a browser can put it; never in the address."""
    server = await start(auth_secret=SECRET)
    client = await server.connect(token=token())
    opened = await client.open_session("wren")
    assert opened["user"] == {"id": "ana", "name": "Ana"}

    stranger = await server.connect()
    assert (await stranger.open_session("wren"))["error"]["code"] == "not_authenticated"
    assert await closed_with(stranger) == 4401


async def test_a_session_ends_when_its_token_does(start: StartServer) -> None:
    """Within seconds, not at the next request."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    brief = await entered(server, token(exp=now + 30))
    await entered(server, token(sub="bo", exp=now + 3600))
    await clock.advance(31)
    assert await closed_with(brief) == 4401
    assert len(server.app.registry._all()) == 1


async def test_a_revoked_user_is_out_at_once_and_stays_out(start: StartServer) -> None:
    """In every process, over every door, until a newer token is minted."""
    server, other = await start(auth_secret=SECRET), await start(auth_secret=SECRET)
    old = token(iat=time.time() - 5)
    there = await entered(other, old)
    here = await entered(server, token(sub="cy", jti="one", iat=time.time() - 5))
    stays = await entered(server, token(sub="bo"))
    chief = token(sub="chief", scopes=["admin"])
    async with httpx2.AsyncClient() as http:
        for body in ({"user": "ana"}, {"user": "bo", "token_id": "another"}, {"user": "cy"}):
            answer = await http.post(
                f"http://127.0.0.1:{server.port}/v1/admin/revocations",
                headers={"authorization": f"Bearer {chief}"},
                json=body,
            )
            assert answer.status_code == 201
    assert await closed_with(here) == 4401
    assert await closed_with(there) == 4401
    assert (await get(server, "/v1/relationships", old)).status_code == 401
    again = await other.connect()
    assert (await again.open_session("wren", token=old))["error"]["code"] == "not_authenticated"
    await asyncio.sleep(0)
    fresh = token(iat=time.time() + 2)
    assert (await get(server, "/v1/relationships", fresh)).status_code == 200
    await stays.draft("I am still here")


async def test_scopes_hold_at_both_doors(start: StartServer) -> None:
    """Chatting shows no memories without memory:read; nothing is changed without memory:write."""
    server = await start(auth_secret=SECRET, pause_ms=50)
    client = await entered(server, token())
    await client.send("I love the lighthouse at Cape Vell")
    stored = await client.expect("memory.stored")
    assert stored["stored"]
    await client.close()

    (bond,) = (await get(server, "/v1/relationships", token())).json()
    path = f"/v1/relationships/{bond['id']}/memories"
    assert (await get(server, path, token(scopes=["chat"]))).status_code == 403
    assert (await get(server, path, token(scopes=["memory:read"]))).status_code == 200
    async with httpx2.AsyncClient() as http:
        answer = await http.delete(
            f"http://127.0.0.1:{server.port}{path}",
            headers={"authorization": f"Bearer {token(scopes=['chat', 'memory:read'])}"},
        )
    assert answer.status_code == 403
    assert answer.json()["error"]["param"] == "token"

    chats = await entered(server, token(scopes=["chat"]))
    await chats.draft("Which lighthouse do I love?")
    assert (await chats.expect("context.ready"))["memories"] == []
    sees = await entered(server, token(scopes=["chat", "memory:read"]))
    await sees.draft("Which lighthouse do I love?")
    assert (await sees.expect("context.ready"))["memories"]

    mute = await server.connect()
    refused = await mute.open_session("wren", token=token(scopes=["memory:read"]))
    assert refused["error"]["code"] == "not_allowed"
    assert await closed_with(mute) == 4403


async def test_who_looks_at_another_users_memory_leaves_a_trace(start: StartServer) -> None:
    """An admin may, on the user's behalf, and is written down; others may not."""
    server = await start(auth_secret=SECRET)
    await entered(server, token())
    (bond,) = (await get(server, "/v1/relationships", token())).json()
    path = f"/v1/relationships/{bond['id']}/memories"
    assert (await get(server, path, token(sub="eve"))).status_code == 404
    assert (await get(server, path + "?user=ana", token(sub="eve"))).status_code == 404
    chief = token(sub="chief", scopes=["admin"])
    assert (await get(server, path, chief)).status_code == 404
    assert (await get(server, path + "?user=ana", chief)).status_code == 200
    trail = await get(server, f"/v1/relationships/{bond['id']}/audit", token())
    (entry,) = trail.json()["audit"]
    assert (entry["actor"], entry["action"], entry["subject"]) == ("chief", "read", "memories")
    assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM audit") == 1


async def test_too_many_requests_are_told_when_to_come_back(start: StartServer) -> None:
    """One user's requests do not count for another's."""
    server = await start(auth_secret=SECRET, http_per_s=0.5)
    answers = [await get(server, "/v1/relationships", token()) for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].json()["error"]["retryable"]
    assert (await get(server, "/v1/relationships", token(sub="bo"))).status_code == 200
