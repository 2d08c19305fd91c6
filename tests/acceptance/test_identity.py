"""Tokens over real sockets: scopes, expiry, renewal, revocation, rotated keys, the audit trail."""

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect as open_socket

from foremind.api.openapi import OPERATIONS
from foremind.auth.access_tokens import mint
from foremind.auth.signing_keys import generate_key, read_keys
from foremind_client import Client, Closed
from foremind_eval.doubles.manual_clock import ManualClock
from tests.acceptance.test_every_route import REQUEST_BODIES
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token


async def open_session_with(server: RunningServer, signed: str, **more: str) -> Client:
    """Return a client with an open session."""
    client = await server.connect(**more)
    opened = await client.open_session("wren", token=signed)
    assert opened["type"] == "session.opened", opened
    return client


async def get(server: RunningServer, path: str, signed: str) -> httpx2.Response:
    """Return the response to an HTTP request."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.get(
            f"http://127.0.0.1:{server.port}{path}", headers={"authorization": f"Bearer {signed}"}
        )


async def close_code(client: Client) -> int:
    """Return the code that a connection is closed with."""
    with pytest.raises(Closed) as caught:
        async with asyncio.timeout(PATIENCE):
            while True:
                await client.next_event()
    return caught.value.code


async def test_a_token_may_be_sent_as_a_subprotocol(start: StartServer) -> None:
    """The only place besides the message where a browser can put it; never in the URL."""
    server = await start(auth_secret=SECRET)
    client = await server.connect(token=token())
    opened = await client.open_session("wren")
    assert opened["user"] == {"id": "ana", "name": "Ana"}

    both = await server.connect(token=token())
    opened = await both.open_session("wren", token=token(sub="bo", name="Bo"))
    assert opened["user"] == {"id": "bo", "name": "Bo"}

    stranger = await server.connect()
    assert (await stranger.open_session("wren"))["error"]["code"] == "not_authenticated"
    assert await close_code(stranger) == 4401


async def test_nothing_else_in_a_handshake_is_a_token(start: StartServer) -> None:
    """Neither the header of HTTP requests nor the URL."""
    server = await start(auth_secret=SECRET)
    headers = {"Authorization": f"Bearer {token()}"}
    url = f"{server.url}?token={token()}"
    async with open_socket(url, additional_headers=headers, compression=None) as socket:
        await socket.send(json.dumps({"type": "session.open", "companion": "wren"}))
        assert json.loads(await socket.recv())["error"]["code"] == "not_authenticated"


async def test_a_session_ends_when_its_token_expires(start: StartServer) -> None:
    """Within seconds, not at the next request."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    expiring = await open_session_with(server, token(exp=now + 30))
    await open_session_with(server, token(sub="bo", exp=now + 3600))
    await clock.advance(31)
    assert await close_code(expiring) == 4401
    assert len(server.app.registry._all()) == 1


async def revoke(server: RunningServer, clock: ManualClock, **claims: str) -> httpx2.Response:
    """Have an operator revoke tokens."""
    admin_token = token(sub="chief", scopes=["admin"], exp=clock.now().timestamp() + 60)
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.post(
            f"http://127.0.0.1:{server.port}/v1/admin/revocations",
            headers={"authorization": f"Bearer {admin_token}"},
            json=claims,
        )
    assert response.status_code == 201
    return response


async def test_a_revoked_user_is_disconnected_and_refused_at_once(start: StartServer) -> None:
    """In every process, over the WebSocket and HTTP, until a newer token is minted."""
    clock = ManualClock()
    server, other = await start(clock, auth_secret=SECRET), await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    old = token(iat=now - 5, exp=now + 3600)
    on_other = await open_session_with(other, old)
    on_server = await open_session_with(
        server, token(sub="cy", jti="one", iat=now - 5, exp=now + 3600)
    )
    unaffected = await open_session_with(server, token(sub="bo", exp=now + 3600))
    until = (await revoke(server, clock, user="ana")).json()["issued_until"]
    assert (await revoke(server, clock, user="bo", token_id="another")).json()[
        "issued_until"
    ] is None
    await revoke(server, clock, user="cy")
    assert await close_code(on_server) == 4401
    assert await close_code(on_other) == 4401
    assert (await get(server, "/v1/relationships", old)).status_code == 401
    reconnected = await other.connect()
    assert (await reconnected.open_session("wren", token=old))["error"][
        "code"
    ] == "not_authenticated"
    await clock.advance(31)
    now = clock.now().timestamp()
    assert datetime.fromisoformat(until).timestamp() == now - 1
    fresh = token(iat=now, exp=now + 3600)
    assert (await get(server, "/v1/relationships", fresh)).status_code == 200
    assert (await get(server, "/v1/relationships", old)).status_code == 401
    await unaffected.draft("I am still here")


@pytest.mark.parametrize("ahead_s", [-3600.0, -0.5, 0.0, 0.5, 15.0, 29.9, 30.0])
@pytest.mark.parametrize("single_token", [True, False], ids=["one", "all"])
async def test_tokens_minted_before_a_revocation_are_refused_for_good(
    start: StartServer, ahead_s: float, single_token: bool
) -> None:
    """However far the issuer's clock is ahead, and however much time passes."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    minted = token(jti="t1", iat=now + ahead_s, exp=now + 3600)
    client = await open_session_with(server, minted)
    await revoke(server, clock, user="ana", **({"token_id": "t1"} if single_token else {}))
    assert await close_code(client) == 4401
    for wait_s in (0, 31, 1800):
        await clock.leap(wait_s)
        assert (await get(server, "/v1/relationships", minted)).status_code == 401
        reconnected = await server.connect()
        refused = await reconnected.open_session("wren", token=minted)
        assert refused["error"]["code"] == "not_authenticated"


async def test_sessions_of_a_replaced_key_end(start: StartServer, tmp_path: Path) -> None:
    """Also if the `kid` stays; replacing a key pair by its public half changes nothing."""
    clock = ManualClock()
    path = tmp_path / "keys.json"
    key_pair, public = generate_key("k")
    shared = {"kid": "s", "alg": "HS256", "kty": "oct", "k": "YQ" * 32}
    path.write_text(json.dumps({"keys": [key_pair, shared]}))
    exp = clock.now().timestamp() + 3600
    claims = {"sub": "ana", "exp": exp}
    keys = read_keys(path)
    server = await start(clock, auth_keys=path)
    by_pair = await open_session_with(server, mint(claims, keys["k"]))
    by_secret = await open_session_with(server, mint(claims | {"sub": "bo"}, keys["s"]))

    path.write_text(json.dumps({"keys": [public, shared]}))
    await clock.advance(3)
    assert len(server.app.registry._all()) == 2

    path.write_text(json.dumps({"keys": [public, shared | {"k": "Yg" * 32}]}))
    await clock.advance(3)
    assert await close_code(by_secret) == 4401
    await by_pair.draft("I am still here")

    path.write_text(json.dumps({"keys": [generate_key("k")[1]]}))
    await clock.advance(3)
    assert await close_code(by_pair) == 4401


async def test_scopes_apply_to_http_and_websocket(start: StartServer) -> None:
    """Chat shows no memories without memory:read; changes require memory:write."""
    server = await start(auth_secret=SECRET, pause_ms=50)
    client = await open_session_with(server, token())
    await client.send("I love the lighthouse at Cape Vell")
    stored = await client.expect("memory.stored")
    assert stored["stored"]
    await client.close()

    (relationship,) = (await get(server, "/v1/relationships", token())).json()
    path = f"/v1/relationships/{relationship['id']}/memories"
    assert (await get(server, path, token(scopes=["chat"]))).status_code == 403
    assert (await get(server, path, token(scopes=["memory:read"]))).status_code == 200
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.delete(
            f"http://127.0.0.1:{server.port}{path}",
            headers={"authorization": f"Bearer {token(scopes=['chat', 'memory:read'])}"},
        )
    assert response.status_code == 403
    assert response.json()["error"]["param"] == "token"

    without_read = await open_session_with(server, token(scopes=["chat"]))
    await without_read.draft("Which lighthouse do I love?")
    assert (await without_read.expect("context.ready"))["memories"] == []
    with_read = await open_session_with(server, token(scopes=["chat", "memory:read"]))
    await with_read.draft("Which lighthouse do I love?")
    assert (await with_read.expect("context.ready"))["memories"]

    without_chat = await server.connect()
    refused = await without_chat.open_session("wren", token=token(scopes=["memory:read"]))
    assert refused["error"]["code"] == "not_allowed"
    assert await close_code(without_chat) == 4403


async def test_admin_access_to_a_users_memories_is_audited(start: StartServer) -> None:
    """Admins may read them on the user's behalf; others may not."""
    server = await start(auth_secret=SECRET)
    await open_session_with(server, token())
    (relationship,) = (await get(server, "/v1/relationships", token())).json()
    path = f"/v1/relationships/{relationship['id']}/memories"
    assert (await get(server, path, token(sub="eve"))).status_code == 404
    assert (await get(server, path + "?user=ana", token(sub="eve"))).status_code == 403
    admin_token = token(sub="chief", scopes=["admin"])
    assert (await get(server, path, admin_token)).status_code == 404
    assert (await get(server, path + "?user=ana", admin_token)).status_code == 200
    trail = await get(server, f"/v1/relationships/{relationship['id']}/audit", token())
    (entry,) = trail.json()["audit"]
    assert (entry["actor"], entry["action"], entry["subject"]) == ("chief", "read", "memories")
    assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM audit") == 1


async def test_an_import_may_not_claim_more_than_its_importer_may_write(start: StartServer) -> None:
    """A player's import writes as the user; only an operator's may write as the developer."""
    server = await start(auth_secret=SECRET)
    admin_token = token(sub="chief", scopes=["admin"])

    async def send(path: str, signed: str, body: object) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            url = f"http://127.0.0.1:{server.port}{path}"
            return await http.post(url, json=body, headers={"authorization": f"Bearer {signed}"})

    async def records(path: str, signed: str) -> dict[str, str]:
        shown = (await get(server, f"{path}/records?layer=vault", signed)).json()["records"]
        return {record["content"]: record["made_by"] for record in shown}

    await open_session_with(server, token())
    (relationship,) = (await get(server, "/v1/relationships", token())).json()
    path = f"/v1/relationships/{relationship['id']}"
    developer_record = {"layer": "vault", "content": "Never swear", "by": "developer"}
    assert (await send(f"{path}/records", token(), developer_record)).status_code == 403
    assert (
        await send(f"{path}/records?user=ana", admin_token, developer_record)
    ).status_code == 201
    own = {"layer": "vault", "content": "The gate code is 4711"}
    assert (await send(f"{path}/records", token(), own)).status_code == 201
    lie = await send(
        f"{path}/records?user=ana", admin_token, {**developer_record, "content": "Never lie"}
    )
    changed = f"http://127.0.0.1:{server.port}{path}/records/{lie.json()['id']}"
    async with httpx2.AsyncClient(
        headers={"authorization": f"Bearer {token()}"}, timeout=PATIENCE
    ) as http:
        assert (await http.patch(changed, json={"content": "Lie"})).is_success
    exported = (await get(server, f"{path}/export", token())).json()
    authors = {"Never swear": "developer", "The gate code is 4711": "user", "Lie": "user"}
    assert {record["content"]: record["made_by"] for record in exported["records"]} == authors

    for signed, user, actor in ((token(sub="bo"), "", "bo"), (admin_token, "?user=cy", "chief")):
        imported = await send(f"/v1/relationships/import{user}", signed, exported)
        assert imported.status_code == 201, imported.text
        import_path = f"/v1/relationships/{imported.json()['id']}"
        owner = token(sub=user.partition("=")[2] or "bo")
        expected = authors if actor == "chief" else dict.fromkeys(authors, "user")
        assert await records(import_path, owner) == expected
        trail = (await get(server, f"{import_path}/audit", owner)).json()["audit"]
        assert [(entry["actor"], entry["action"]) for entry in trail] == [(actor, "import")]
        shown = (await get(server, f"{import_path}/records", owner)).json()["records"]
        changed = next(record["id"] for record in shown if record["content"] == "Lie")
        await send(f"{import_path}/records/{changed}/restore", owner, {"revision": 1})
        by = "developer" if actor == "chief" else "user"
        assert (await records(import_path, owner))["Never lie"] == by


async def test_every_read_on_behalf_of_a_user_is_audited(start: StartServer) -> None:
    """On every route that shows parts of a relationship, including the list of relationships."""
    server = await start(auth_secret=SECRET)
    await open_session_with(server, token())
    (relationship,) = (await get(server, "/v1/relationships", token())).json()
    admin_token = token(sub="chief", scopes=["admin"])
    requested = []
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.path.startswith("/v1/relationships"):
            path = operation.path.format(id=relationship["id"], record=1)
            await get(server, f"{path}?user=ana", admin_token)
            requested.append(path)
    trail = (await get(server, f"/v1/relationships/{relationship['id']}/audit", token())).json()[
        "audit"
    ]
    reads = [entry for entry in trail if entry["action"] == "read"]
    assert len(reads) == len(requested) > 5
    assert {entry["actor"] for entry in trail} == {"chief"}


async def test_every_change_on_behalf_of_a_user_is_audited(start: StartServer) -> None:
    """On every route below a relationship, also where everything is deleted; each access once."""
    server = await start(auth_secret=SECRET)
    await open_session_with(server, token())
    (relationship,) = (await get(server, "/v1/relationships", token())).json()
    admin_token = token(sub="chief", scopes=["admin"])
    entry_ids: set[str] = set()
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE,
        headers={"authorization": f"Bearer {admin_token}"},
    ) as http:  # fmt: skip
        for operation in OPERATIONS:
            if operation.method == "GET" or "/relationships/{id}" not in operation.path:
                continue
            path = operation.path.format(id=relationship["id"], record=1, memory=1)
            body = None if operation.body is None else REQUEST_BODIES[operation.body]
            response = await http.request(operation.method, f"{path}?user=ana", json=body or None)
            assert response.status_code in (200, 201, 202, 404), (operation.path, response.text)
            audit_path = f"/v1/relationships/{relationship['id']}/audit"
            trail = (await get(server, audit_path, token())).json()["audit"]
            new = [entry for entry in trail if entry["id"] not in entry_ids]
            assert new, operation.path
            assert {entry["actor"] for entry in new} == {"chief"}, operation.path
            accesses = [entry for entry in new if entry["action"] in ("read", "change")]
            assert len(accesses) <= 1, operation.path
            entry_ids.update(entry["id"] for entry in new)
    assert len(entry_ids) > 5


async def test_too_many_requests_get_retry_after(start: StartServer) -> None:
    """Each user has a limit of their own."""
    server = await start(auth_secret=SECRET, http_per_s=0.5)
    responses = [await get(server, "/v1/relationships", token()) for _ in range(4)]
    assert [response.status_code for response in responses] == [200, 200, 429, 429]
    assert int(responses[-1].headers["retry-after"]) >= 1
    assert responses[-1].json()["error"]["retryable"]
    assert (await get(server, "/v1/relationships", token(sub="bo"))).status_code == 200


async def test_a_session_is_extended_by_a_new_token(start: StartServer) -> None:
    """Over the same connection, until the second token expires."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    client = await open_session_with(server, token(exp=now + 30))
    await client.send_raw({"type": "session.update", "token": token(exp=now + 90)})
    updated = await client.expect("session.updated", "error")
    assert datetime.fromisoformat(updated["expires_at"]).timestamp() == now + 90
    assert updated["scopes"] == ["chat", "memory:read", "memory:write"]
    await clock.advance(40)
    await client.send("I am still here")
    assert (await client.expect("response.done"))["status"] == "completed"
    await clock.advance(60)
    assert await close_code(client) == 4401


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
async def test_an_unacceptable_new_token_changes_nothing(
    start: StartServer, changes: dict[str, Any], code: str
) -> None:
    """Of another user or companion, without the scope chat, expired, forged, or revoked."""
    clock = ManualClock()
    server = await start(clock, auth_secret=SECRET)
    now = clock.now().timestamp()
    client = await open_session_with(server, token(exp=now + 30, jti="first"))
    await revoke(server, clock, user="ana", token_id="gone")
    new_token = token(**({"exp": now + 90} | changes))
    await client.send_raw({"type": "session.update", "token": new_token, "event_id": "u1"})
    error = (await client.expect("error", "session.updated"))["error"]
    assert (error["code"], error["param"], error["event_id"]) == (code, "token", "u1")
    await client.send("I am still here")
    assert (await client.expect("response.done"))["status"] == "completed"
    await clock.advance(40)
    assert await close_code(client) == 4401


async def test_a_new_token_requires_a_session_with_a_token(start: StartServer) -> None:
    """It is refused before the session is open, and in open mode."""
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
async def test_a_narrower_token_hides_memories_in_replayed_events(
    start: StartServer, how: str
) -> None:
    """Both in replayed and in new events, whether the session is resumed or renewed with it."""
    server = await start(auth_secret=SECRET, pause_ms=50, eager=False)  # one event per draft
    wide, narrow = token(), token(scopes=["chat"])
    client = await server.connect()
    opened = await client.open_session("wren", token=wide)
    await client.send("I love the lighthouse at Cape Vell")
    await client.expect_all("memory.stored", "response.done")
    await client.draft("Which lighthouse do I love?")
    assert (await client.expect("context.ready"))["memories"]
    resume_from = (opened["session_id"], opened["seq"])
    if how == "renewed":
        await client.send_raw({"type": "session.update", "token": narrow})
        assert (await client.expect("session.updated"))["scopes"] == ["chat"]
    reconnected = await server.connect()
    resumed = await reconnected.open_session(
        "wren", token=wide if how == "renewed" else narrow, resume=resume_from
    )
    assert resumed["resumed"]
    await reconnected.draft("Which lighthouse do I love most?")
    shown = [await reconnected.expect("context.ready")]
    while shown[-1]["draft"] != "Which lighthouse do I love most?":
        shown.append(await reconnected.expect("context.ready"))
    assert shown[0]["draft"] != shown[-1]["draft"]
    assert not any(event["memories"] for event in shown[:-1])
    assert bool(shown[-1]["memories"]) == (how == "renewed")
