"""Who may enter, over real sockets: tokens, scopes, their end."""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from foremind.api.openapi import OPERATIONS
from foremind.auth.access_tokens import mint
from foremind.auth.signing_keys import new_key, read_keys
from foremind.client import Client, Closed
from foremind.testing.manual_clock import ManualClock
from tests.acceptance.test_door import BODIES
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token


async def entered(server: RunningServer, signed: str, **more: str) -> Client:
    """A client with an open session."""
    client = await server.connect(**more)
    opened = await client.open_session("wren", token=signed)
    assert opened["type"] == "session.opened", opened
    return client


async def get(server: RunningServer, path: str, signed: str) -> httpx2.Response:
    """The answer to an HTTP request."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.get(
            f"http://127.0.0.1:{server.port}{path}", headers={"authorization": f"Bearer {signed}"}
        )


async def closed_with(client: Client) -> int:
    """The code that a connection is closed with."""
    with pytest.raises(Closed) as caught:
        async with asyncio.timeout(PATIENCE):
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


async def revoke(server: RunningServer, clock: ManualClock, **whom: str) -> httpx2.Response:
    """Have an operator revoke tokens."""
    chief = token(sub="chief", scopes=["admin"], exp=clock.now().timestamp() + 60)
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.post(
            f"http://127.0.0.1:{server.port}/v1/admin/revocations",
            headers={"authorization": f"Bearer {chief}"},
            json=whom,
        )
    assert answer.status_code == 201
    return answer


async def test_a_revoked_user_is_out_at_once_and_stays_out(start: StartServer) -> None:
    """In every process, over every door, until a newer token is minted."""
    clock = ManualClock()
    server, other = await start(clock, auth_secret=SECRET), await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    old = token(iat=now - 5, exp=now + 3600)
    there = await entered(other, old)
    here = await entered(server, token(sub="cy", jti="one", iat=now - 5, exp=now + 3600))
    stays = await entered(server, token(sub="bo", exp=now + 3600))
    until = (await revoke(server, clock, user="ana")).json()["issued_until"]
    assert (await revoke(server, clock, user="bo", token_id="another")).json()[
        "issued_until"
    ] is None
    await revoke(server, clock, user="cy")
    assert await closed_with(here) == 4401
    assert await closed_with(there) == 4401
    assert (await get(server, "/v1/relationships", old)).status_code == 401
    again = await other.connect()
    assert (await again.open_session("wren", token=old))["error"]["code"] == "not_authenticated"
    await clock.advance(31)
    now = clock.now().timestamp()
    assert datetime.fromisoformat(until).timestamp() == now - 1
    fresh = token(iat=now, exp=now + 3600)
    assert (await get(server, "/v1/relationships", fresh)).status_code == 200
    assert (await get(server, "/v1/relationships", old)).status_code == 401
    await stays.draft("I am still here")


@pytest.mark.parametrize("ahead_s", [-3600.0, -0.5, 0.0, 0.5, 15.0, 29.9, 30.0])
@pytest.mark.parametrize("one", [True, False], ids=["one", "all"])
async def test_no_token_that_was_minted_before_outlives_a_revocation(
    start: StartServer, ahead_s: float, one: bool
) -> None:
    """However far the clock of who minted it is ahead, and however long somebody waits."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    minted = token(jti="t1", iat=now + ahead_s, exp=now + 3600)
    client = await entered(server, minted)
    await revoke(server, clock, user="ana", **({"token_id": "t1"} if one else {}))
    assert await closed_with(client) == 4401
    for wait_s in (0, 31, 1800):
        await clock.advance(wait_s)
        assert (await get(server, "/v1/relationships", minted)).status_code == 401
        again = await server.connect()
        refused = await again.open_session("wren", token=minted)
        assert refused["error"]["code"] == "not_authenticated"


async def test_sessions_of_a_key_that_was_replaced_end(start: StartServer, tmp_path: Path) -> None:
    """Under the same kid too; the public half in the place of the whole key changes nothing."""
    clock = ManualClock()
    path = tmp_path / "keys.json"
    whole, public = new_key("k")
    shared = {"kid": "s", "alg": "HS256", "kty": "oct", "k": "YQ" * 32}
    path.write_text(json.dumps({"keys": [whole, shared]}))
    exp = clock.now().timestamp() + 3600
    claims = {"sub": "ana", "exp": exp}
    keys = read_keys(path)
    server = await start(clock, auth_keys=path)
    by_pair = await entered(server, mint(claims, keys["k"]))
    by_secret = await entered(server, mint(claims | {"sub": "bo"}, keys["s"]))

    path.write_text(json.dumps({"keys": [public, shared]}))
    await clock.advance(3)
    assert len(server.app.registry._all()) == 2

    path.write_text(json.dumps({"keys": [public, shared | {"k": "Yg" * 32}]}))
    await clock.advance(3)
    assert await closed_with(by_secret) == 4401
    await by_pair.draft("I am still here")

    path.write_text(json.dumps({"keys": [new_key("k")[1]]}))
    await clock.advance(3)
    assert await closed_with(by_pair) == 4401


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
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
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


async def test_an_import_says_what_who_brings_it_may_say(start: StartServer) -> None:
    """A player's file makes nothing the developer's; an operator's import is the operator's."""
    server = await start(auth_secret=SECRET)
    chief = token(sub="chief", scopes=["admin"])

    async def send(path: str, signed: str, body: object) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            url = f"http://127.0.0.1:{server.port}{path}"
            return await http.post(url, json=body, headers={"authorization": f"Bearer {signed}"})

    async def records(path: str, signed: str) -> dict[str, str]:
        shown = (await get(server, f"{path}/records?layer=vault", signed)).json()["records"]
        return {each["content"]: each["made_by"] for each in shown}

    await entered(server, token())
    (bond,) = (await get(server, "/v1/relationships", token())).json()
    path = f"/v1/relationships/{bond['id']}"
    rule = {"layer": "vault", "content": "Never swear", "by": "developer"}
    assert (await send(f"{path}/records", token(), rule)).status_code == 403
    assert (await send(f"{path}/records?user=ana", chief, rule)).status_code == 201
    mine = {"layer": "vault", "content": "The gate code is 4711"}
    assert (await send(f"{path}/records", token(), mine)).status_code == 201
    lie = await send(f"{path}/records?user=ana", chief, {**rule, "content": "Never lie"})
    changed = f"http://127.0.0.1:{server.port}{path}/records/{lie.json()['id']}"
    async with httpx2.AsyncClient(
        headers={"authorization": f"Bearer {token()}"}, timeout=PATIENCE
    ) as http:
        assert (await http.patch(changed, json={"content": "Lie"})).is_success
    exported = (await get(server, f"{path}/export", token())).json()
    makers = {"Never swear": "developer", "The gate code is 4711": "user", "Lie": "user"}
    assert {each["content"]: each["made_by"] for each in exported["records"]} == makers

    for signed, user, actor in ((token(sub="bo"), "", "bo"), (chief, "?user=cy", "chief")):
        done = await send(f"/v1/relationships/import{user}", signed, exported)
        assert done.status_code == 201, done.text
        of = f"/v1/relationships/{done.json()['id']}"
        owner = token(sub=user.partition("=")[2] or "bo")
        kept = makers if actor == "chief" else dict.fromkeys(makers, "user")
        assert await records(of, owner) == kept
        trail = (await get(server, f"{of}/audit", owner)).json()["audit"]
        assert [(each["actor"], each["action"]) for each in trail] == [(actor, "import")]
        shown = (await get(server, f"{of}/records", owner)).json()["records"]
        changed = next(each["id"] for each in shown if each["content"] == "Lie")
        await send(f"{of}/records/{changed}/restore", owner, {"revision": 1})
        by = "developer" if actor == "chief" else "user"
        assert (await records(of, owner))["Never lie"] == by


async def test_every_look_at_anothers_memory_leaves_a_trace(start: StartServer) -> None:
    """On every route that shows something of a relationship, the list of them included."""
    server = await start(auth_secret=SECRET)
    await entered(server, token())
    (bond,) = (await get(server, "/v1/relationships", token())).json()
    chief = token(sub="chief", scopes=["admin"])
    seen = []
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.path.startswith("/v1/relationships"):
            path = operation.path.format(id=bond["id"], record=1)
            await get(server, f"{path}?user=ana", chief)
            seen.append(path)
    trail = (await get(server, f"/v1/relationships/{bond['id']}/audit", token())).json()["audit"]
    looked = [each for each in trail if each["action"] == "read"]
    assert len(looked) == len(seen) > 5
    assert {each["actor"] for each in trail} == {"chief"}


async def test_every_change_of_anothers_memory_leaves_a_trace(start: StartServer) -> None:
    """On every route below a relationship, also where everything goes."""
    server = await start(auth_secret=SECRET)
    await entered(server, token())
    (bond,) = (await get(server, "/v1/relationships", token())).json()
    signed = token(sub="chief", scopes=["admin"])
    seen: set[str] = set()
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE,
        headers={"authorization": f"Bearer {signed}"},
    ) as http:  # fmt: skip
        for operation in OPERATIONS:
            if operation.method == "GET" or "/relationships/{id}" not in operation.path:
                continue
            path = operation.path.format(id=bond["id"], record=1, memory=1)
            body = None if operation.body is None else BODIES[operation.body.__name__]
            answer = await http.request(operation.method, f"{path}?user=ana", json=body or None)
            assert answer.status_code in (200, 201, 202, 404), (operation.path, answer.text)
            of = f"/v1/relationships/{bond['id']}/audit"
            (*_, last) = (await get(server, of, token())).json()["audit"]
            assert last["actor"] == "chief", operation.path
            assert last["id"] not in seen, operation.path
            seen.add(last["id"])
    assert len(seen) > 5


async def test_too_many_requests_are_told_when_to_come_back(start: StartServer) -> None:
    """One user's requests do not count for another's."""
    server = await start(auth_secret=SECRET, http_per_s=0.5)
    answers = [await get(server, "/v1/relationships", token()) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert answers[-1].json()["error"]["retryable"]
    assert (await get(server, "/v1/relationships", token(sub="bo"))).status_code == 200


async def test_a_session_goes_on_by_a_fresh_token(start: StartServer) -> None:
    """Past the end of the first, over the same connection; until the end of the second."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    client = await entered(server, token(exp=now + 30))
    await client.send_raw({"type": "session.update", "token": token(exp=now + 90)})
    updated = await client.expect("session.updated", "error")
    assert datetime.fromisoformat(updated["expires_at"]).timestamp() == now + 90
    assert updated["scopes"] == ["chat", "memory:read", "memory:write"]
    await clock.advance(40)
    await client.send("I am still here")
    assert (await client.expect("response.done"))["status"] == "completed"
    await clock.advance(60)
    assert await closed_with(client) == 4401


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sub": "eve"}, "not_allowed"),
        ({"companions": ["mara"]}, "not_allowed"),
        ({"scopes": ["memory:read"]}, "not_allowed"),
        ({"exp": 1}, "not_authenticated"),
        ({"secret": "another secret of thirty-two bytes!"}, "not_authenticated"),
        ({"jti": "gone"}, "not_authenticated"),
    ],
)
async def test_a_token_that_may_not_take_its_place_changes_nothing(
    start: StartServer, changes: dict[str, Any], code: str
) -> None:
    """Another user's, another companion's, without chat, expired, forged, revoked."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    client = await entered(server, token(exp=now + 30, jti="first"))
    await revoke(server, clock, user="ana", token_id="gone")
    wrong = token(**({"exp": now + 90} | changes))
    await client.send_raw({"type": "session.update", "token": wrong, "event_id": "u1"})
    error = (await client.expect("error", "session.updated"))["error"]
    assert (error["code"], error["param"], error["event_id"]) == (code, "token", "u1")
    await client.send("I am still here")
    assert (await client.expect("response.done"))["status"] == "completed"
    await clock.advance(40)
    assert await closed_with(client) == 4401


async def test_a_fresh_token_is_for_a_session_that_has_one(start: StartServer) -> None:
    """Not before it is open, and not where the server asks for none."""
    server = await start(auth_secret=SECRET)
    early = await server.connect()
    await early.send_raw({"type": "session.update", "token": token()})
    assert (await early.expect("error"))["error"]["code"] == "not_open"
    client = await (await start()).session()
    await client.send_raw({"type": "session.update", "token": token()})
    error = (await client.expect("error"))["error"]
    assert (error["code"], error["param"]) == ("invalid_message", "token")
    await client.send("I am still here")
    assert (await client.expect("response.done"))["status"] == "completed"


@pytest.mark.parametrize("how", ["resumed", "renewed"])
async def test_a_narrower_token_sees_no_memory_that_was_shown_before(
    start: StartServer, how: str
) -> None:
    """Neither in what is sent again nor in what comes; whoever brings it, and at once."""
    server = await start(auth_secret=SECRET, pause_ms=50)
    wide, narrow = token(), token(scopes=["chat"])
    client = await server.connect()
    opened = await client.open_session("wren", token=wide)
    await client.send("I love the lighthouse at Cape Vell")
    await client.expect_all("memory.stored", "response.done")
    await client.draft("Which lighthouse do I love?")
    assert (await client.expect("context.ready"))["memories"]
    since = (opened["session_id"], opened["seq"])
    if how == "renewed":
        await client.send_raw({"type": "session.update", "token": narrow})
        assert (await client.expect("session.updated"))["scopes"] == ["chat"]
    again = await server.connect()
    resumed = await again.open_session(
        "wren", token=wide if how == "renewed" else narrow, resume=since
    )
    assert resumed["resumed"]
    await again.draft("Which lighthouse do I love most?")
    shown = [await again.expect("context.ready")]
    while shown[-1]["draft"] != "Which lighthouse do I love most?":
        shown.append(await again.expect("context.ready"))
    assert shown[0]["draft"] != shown[-1]["draft"]
    assert not any(each["memories"] for each in shown[:-1])
    assert bool(shown[-1]["memories"]) == (how == "renewed")
