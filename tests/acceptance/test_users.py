"""Users as a whole: consent, export, erasure, retention, and messages not to be remembered."""

import json
import time
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from tests.acceptance.test_identity import close_code
from tests.acceptance.traces import objects_containing, stored_text
from tests.acceptance.world import World, world
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

WORD = "xylophone"
SAID = "I buried the xylophone under the pear tree"


async def send_request(
    server: RunningServer, method: str, path: str, signed: str | None = None
) -> httpx2.Response:
    """Send an HTTP request, with a token or in open mode."""
    headers = {} if signed is None else {"authorization": f"Bearer {signed}"}
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        url = f"http://127.0.0.1:{server.port}{path}"
        return await client.request(method, url, headers=headers)


def token_of(user: str, **more: Any) -> str:
    """Return a token of a user."""
    return token(sub=user, name=user.title(), exp=time.time() + 3600, **more)


async def test_an_erased_user_leaves_no_trace(start: StartServer) -> None:
    """No id, name or time zone, with any companion or in audit trails; other users stay."""
    server = await start(auth_secret=SECRET)
    await server.app.core.stores.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
    clients = []
    for user, companion in (("zenobia", "wren"), ("zenobia", "mara"), ("bo", "wren")):
        client = await server.connect(token=token_of(user))
        opened = await client.open_session(companion, time_zone="Atlantic/Azores")
        await client.send(f"{SAID}, says {user}")
        await client.expect_all("response.done", "memory.stored")
        clients.append((client, opened["relationship_id"]))
    # As an operator, the same person has read another user's memories.
    signed = token_of("zenobia", scopes=["admin"])
    path = f"/v1/relationships/{clients[2][1]}/memories?user=bo"
    assert (await send_request(server, "GET", path, signed)).status_code == 200

    user_path = "/v1/users/zenobia"
    assert (await send_request(server, "DELETE", user_path, token_of("bo"))).status_code == 403
    restricted = token_of("zenobia", companions=["wren"])
    assert (await send_request(server, "DELETE", user_path, restricted)).status_code == 403
    exported = (
        await send_request(server, "GET", f"{user_path}/export", token_of("zenobia"))
    ).json()
    assert exported["time_zone"] == "Atlantic/Azores"
    companions = {relationship["companion"] for relationship in exported["relationships"]}
    assert companions == {"wren", "mara"}
    response = await send_request(server, "DELETE", user_path, token_of("zenobia"))
    assert response.status_code == 200, response.text
    receipt = response.json()
    assert (receipt["relationships"], receipt["memories"]) == (2, 2)
    for client, _ in clients[:2]:
        assert await close_code(client) == 4403
    stored = await stored_text(server)
    assert "zenobia" not in stored
    assert "azores" in stored  # bo's
    assert "says bo" in stored
    await eventually(lambda: not objects_containing("says zenobia"))
    trail = await owner_of(server.app.core).fetch("SELECT actor FROM audit")
    assert [entry["actor"][:7] for entry in trail] == ["erased-"]
    assert (await send_request(server, "DELETE", user_path, token_of("zenobia"))).status_code == 404


@pytest.mark.parametrize(
    "user", ["guild/ana", "ana/export", "export", "/", "a b?c#d%2Fe", "ü", r"o'hara\', ''"]
)
async def test_a_user_with_any_id_can_be_exported_and_erased(start: StartServer, user: str) -> None:
    """Game platforms choose the ids of their users."""
    server = await start(auth_secret=SECRET)
    client = await server.connect()
    await client.open_session("wren", token=token_of(user))
    await client.send(SAID)
    await client.expect("memory.stored")
    path = f"/v1/users/{quote(user, safe='')}"
    exported = await send_request(server, "GET", f"{path}/export", token_of(user))
    assert exported.status_code == 200, exported.text
    assert (exported.json()["user"], WORD in exported.text) == (user, True)
    erased = await send_request(server, "DELETE", path, token_of(user))
    assert (erased.status_code, erased.json()["relationships"]) == (200, 1), erased.text
    assert WORD not in await stored_text(server)


async def test_erasing_a_user_does_not_reinstate_revoked_tokens(start: StartServer) -> None:
    """They stay revoked, though nothing stored names their user."""
    server = await start(auth_secret=SECRET)
    signed = token_of("zenobia")
    client = await server.connect(token=signed)
    await client.open_session("wren")
    admin = token_of("op", scopes=["admin"])
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/v1/admin/revocations"
        headers = {"authorization": f"Bearer {admin}"}
        await http.post(url, json={"user": "zenobia"}, headers=headers)
    response = await send_request(server, "DELETE", "/v1/users/zenobia", admin)
    assert response.status_code == 200, response.text
    assert "zenobia" not in await stored_text(server)
    assert (await send_request(server, "GET", "/v1/relationships", signed)).status_code == 401


async def test_an_export_of_a_user_by_an_operator_is_audited(start: StartServer) -> None:
    """In the audit trail of every relationship."""
    server = await start(auth_secret=SECRET)
    client = await server.connect(token=token_of("ana"))
    await client.open_session("wren")
    await client.send(SAID)
    await client.expect_all("response.done", "memory.stored")
    admin = token_of("op", scopes=["admin"])
    response = await send_request(server, "GET", "/v1/users/ana/export", admin)
    (relationship,) = response.json()["relationships"]
    assert SAID in json.dumps(relationship)
    assert relationship["audit"][-1] | {"happened_at": ""} == {
        "actor": "op", "action": "export", "subject": "everything", "happened_at": "",
    }  # fmt: skip


async def settled_storage(w: World) -> str:
    """Return all stored text once background work is done."""
    await w.wait_until_idle()
    return await stored_text(w.server)


async def test_a_message_not_to_be_remembered_is_answered_and_discarded(start: StartServer) -> None:
    """No memory, note or episode; its text is deleted after the session."""
    async with world(start, model=False) as w:
        client = await w.talk("My dog is called Scout")
        await client.send_raw(
            {"type": "message.send", "id": "m9", "text": f"{SAID}. My goal is to play it",
             "remember": False}
        )  # fmt: skip
        accepted = await client.expect("message.accepted")
        assert accepted["remembered"] is False
        await client.expect("response.done")
        await w.wait_until_idle()
        assert (await w.request("GET", "/memories"))["memories"][0]["content"].endswith("Scout")
        assert WORD not in json.dumps((await w.request("GET", "/records"))["records"])
        assert WORD in json.dumps(
            (await w.context("And then?"))["messages"]
        )  # while the session is open
        await w.next_day()
        assert WORD not in await settled_storage(w)
        assert "scout" in await settled_storage(w)
        assert (
            await owner_of(w.server.app.core).fetchval(
                "SELECT count(*) FROM turns WHERE message_id = 'm9'"
            )
            == 1
        )  # the id stays, so that the message is not answered twice


@pytest.mark.parametrize("discarded_by", ["message", "consent"])
async def test_a_message_sent_again_stays_as_it_was_first_sent(
    start: StartServer, discarded_by: str
) -> None:
    """If it is answered only when it is sent again, as one to remember, its reply is discarded."""
    async with world(start, model=True) as w:
        assert w.model is not None
        consent = discarded_by == "consent"
        settings = CompanionSettings(consent="required" if consent else None)
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
        )
        client = await w.talk()
        w.model.script.status = 500
        message = {"type": "message.send", "id": "m9", "text": SAID}
        await client.send_raw(message if consent else message | {"remember": False})
        assert (await client.expect("response.done"))["status"] == "failed"
        w.model.script.status = 200
        w.model.script.reply = lambda _: [f"You said: {SAID}"]
        if consent:
            await w.request("PATCH", "/config", {"consent": True})
        for duplicate_of_answered in (False, True):
            await client.send_raw(message)
            accepted = await client.expect("message.accepted")
            assert (accepted["duplicate"], accepted["remembered"]) == (True, False)
            if not duplicate_of_answered:
                assert WORD in (await client.expect("response.done"))["text"]
        await w.wait_until_idle()
        assert WORD not in json.dumps(await w.memories())
        await client.close()
        await w.next_day()
        assert WORD not in await settled_storage(w)


async def test_discarding_a_repetition_keeps_the_earlier_statement(
    start: StartServer,
) -> None:
    """Its memory, records and turn stay when a repetition is not to be remembered."""
    async with world(start, model=False) as w:
        client = await w.talk("My dog is called Scout")
        await client.close()
        await w.next_day()
        vault = {"layer": "vault", "content": "My dog is called Scout and likes the sea"}
        await w.request("POST", "/records", vault)
        client = await w.talk("I live in Porto")
        await client.send_raw(
            {"type": "message.send", "id": "m9", "text": "My dog is called Scout",
             "remember": False}
        )  # fmt: skip
        await client.expect("response.done")
        await client.close()
        await w.next_day()
        turns = (await w.request("GET", "/export"))["turns"]
        assert [turn["text"] for turn in turns if turn["speaker"] == "user"] == [
            "My dog is called Scout", "I live in Porto",
        ]  # fmt: skip
        memories = (await w.request("GET", "/memories"))["memories"]
        assert "My dog is called Scout" in [memory["content"] for memory in memories]
        assert await w.records("vault")
        assert "Scout" in str(await w.records("profile"))


async def test_consent_that_nobody_asks_for_is_not_withdrawn_in_vain(start: StartServer) -> None:
    """Who withdraws it is told that messages would be remembered, and nothing is changed."""
    async with world(start, model=False) as w:
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        assert opened["consent"] == "assumed"
        url = f"http://127.0.0.1:{w.server.port}/v1/relationships/{opened['relationship_id']}"
        body = {"consent": False, "settings": {"recall_limit": 3}}
        async with httpx2.AsyncClient(timeout=PATIENCE, params={"user": "ana"}) as http:
            refused = await http.patch(f"{url}/config", json=body)
            config = (await http.get(f"{url}/config")).json()
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "consent")
        assert '"remember": false' in error["message"]
        assert config["recall_limit"]["from"] != "relationship"


async def test_nothing_is_remembered_without_consent(start: StartServer) -> None:
    """If the companion requires it; messages after the consent are remembered."""
    async with world(start, model=False) as w:
        settings = CompanionSettings(consent="required")
        await w.server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
        )
        client = await w.server.connect()
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        assert opened["consent"] == "missing"
        w.relationship = int(opened["relationship_id"])
        await client.send(SAID)
        assert (await client.expect("message.accepted"))["remembered"] is False
        await client.expect("response.done")
        config = await w.request("PATCH", "/config", {"consent": True})
        assert config["consented"]["value"] is True
        await client.send("I promise, my dog is called Scout")
        assert (await client.expect("message.accepted"))["remembered"] is True
        await client.expect_all("response.done", "memory.stored")
        await client.close()
        await w.next_day()
        assert WORD not in await settled_storage(w)
        assert "scout" in await settled_storage(w)


@pytest.mark.parametrize("inactive", [False, True], ids=["awake", "asleep"])
async def test_the_transcript_expires(start: StartServer, inactive: bool) -> None:
    """Its memories stay; also in relationships that have long been inactive."""
    days = {} if inactive else {"transcript": 10}
    async with world(start, model=False, retention_days=days) as w:
        await w.talk("I live in Porto", "ok, grey, ok")
        await w.next_day()
        owner = owner_of(w.server.app.core)
        if inactive:
            settings = CompanionSettings(retention_days={"transcript": 10})
            await w.server.app.core.stores.companions.put(
                CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
            )
            await owner.execute("UPDATE relationships SET due_at = NULL")
            await owner.execute("UPDATE relationships SET woken_at = '2026-05-01'")
        for _ in range(12):
            await w.next_day()
        await w.wait_until_idle()
        assert await owner.fetch("SELECT content FROM turns WHERE content <> ''") == []
        memories = await owner.fetch("SELECT content FROM memories")
        assert [memory["content"] for memory in memories] == ["I live in Porto"]
        terms = await owner.fetch("SELECT DISTINCT term FROM memory_terms")
        assert "grey" not in {row["term"] for row in terms}
        assert (await w.context("Where do I live?"))["memories"]


async def test_memories_without_a_transcript_can_be_exported_and_imported(
    start: StartServer,
) -> None:
    """An expired transcript leaves turns without text."""
    async with world(start, model=False, retention_days={"transcript": 3}) as w:
        await w.talk("I live in Porto", "My dog is called Scout")
        await w.next_day()
        await w.talk("I live in Porto")
        for _ in range(5):
            await w.next_day()
        exported = await w.request("GET", "/export")
        assert {turn["text"] for turn in exported["turns"]} == {""}
        await w.request("DELETE", "/memories")
        relationship, w.relationship = w.relationship, "import"  # type: ignore[assignment]
        await w.request("POST", "?companion=wren", exported)
        w.relationship = relationship
        for export in (exported, await w.request("GET", "/export")):
            memories = {(memory["content"], len(memory["again"])) for memory in export["memories"]}
            assert memories == {("I live in Porto", 1), ("My dog is called Scout", 0)}
        assert (await w.context("Where do I live?"))["memories"]
        page = await w.request("GET", "/sessions")
        assert all(session["turns"] == 0 for session in page["sessions"]), page


@pytest.mark.parametrize("imported", [False, True], ids=["here", "read-back"])
async def test_notes_without_a_transcript_are_erased_with_their_session(
    start: StartServer, imported: bool
) -> None:
    """Also if the notes were imported."""
    async with world(start, model=True, retention_days={"transcript": 3}) as w:
        client = await w.talk("ok, grey, ok")
        await client.close()
        for _ in range(5):
            await w.next_day()
        assert (await w.request("GET", "/memories"))["memories"] == []
        assert "grey" in str(await w.records("scratchpad"))
        if imported:
            exported = await w.request("GET", "/export")
            await w.request("DELETE", "/memories")
            relationship, w.relationship = w.relationship, "import"  # type: ignore[assignment]
            await w.request("POST", "?companion=wren", exported)
            w.relationship = relationship
            await w.wait_until_idle()
        assert "grey" in str(await w.records("scratchpad"))
        session = await owner_of(w.server.app.core).fetchval("SELECT session_id FROM turns LIMIT 1")
        await w.request("DELETE", f"/memories?session={session}")
        assert "grey" not in await settled_storage(w)


async def test_drafts_are_not_stored(start: StartServer) -> None:
    """Only the context for a draft contains it, in memory."""
    server = await start(pause_ms=50)
    client = await server.session()
    await client.draft(f"Do you know where {SAID}?")
    await client.expect("context.ready")
    assert "PreparedContext" in objects_containing(WORD)
    assert WORD not in await stored_text(server)
