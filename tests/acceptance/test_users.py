"""A user as a whole: asked before anything is remembered, taken out, erased everywhere."""

import json
import time
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from foremind.domain.companion import CompanionFile, CompanionSettings
from tests.acceptance.layers import World, world
from tests.acceptance.test_identity import closed_with
from tests.acceptance.traces import held_in_process, stored_text
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

WORD = "xylophone"
SAID = "I buried the xylophone under the pear tree"


async def asked(
    server: RunningServer, method: str, path: str, signed: str | None = None
) -> httpx2.Response:
    """An HTTP request, with a token or in open mode."""
    headers = {} if signed is None else {"authorization": f"Bearer {signed}"}
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        url = f"http://127.0.0.1:{server.port}{path}"
        return await client.request(method, url, headers=headers)


def of(user: str, **more: Any) -> str:
    """A user's token."""
    return token(sub=user, name=user.title(), exp=time.time() + 3600, **more)


async def test_an_erased_user_is_nowhere(start: StartServer) -> None:
    """Neither id, name nor zone, with no companion, in no trail; another user stays."""
    server = await start(auth_secret=SECRET)
    await server.app.core.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
    clients = []
    for user, companion in (("zenobia", "wren"), ("zenobia", "mara"), ("bo", "wren")):
        client = await server.connect(token=of(user))
        opened = await client.open_session(companion, time_zone="Atlantic/Azores")
        await client.send(f"{SAID}, says {user}")
        await client.expect_all("response.done", "memory.stored")
        clients.append((client, opened["relationship_id"]))
    # An operator, who is also a player, looked at somebody else's memory.
    signed = of("zenobia", scopes=["admin"])
    path = f"/v1/relationships/{clients[2][1]}/memories?user=bo"
    assert (await asked(server, "GET", path, signed)).status_code == 200

    mine = "/v1/users/zenobia"
    assert (await asked(server, "DELETE", mine, of("bo"))).status_code == 403
    narrow = of("zenobia", companions=["wren"])
    assert (await asked(server, "DELETE", mine, narrow)).status_code == 403
    exported = (await asked(server, "GET", f"{mine}/export", of("zenobia"))).json()
    assert exported["time_zone"] == "Atlantic/Azores"
    assert {each["companion"] for each in exported["relationships"]} == {"wren", "mara"}
    answer = await asked(server, "DELETE", mine, of("zenobia"))
    assert answer.status_code == 200, answer.text
    receipt = answer.json()
    assert (receipt["relationships"], receipt["memories"]) == (2, 2)
    for client, _ in clients[:2]:
        assert await closed_with(client) == 4403
    stored = await stored_text(server)
    assert "zenobia" not in stored
    assert "azores" in stored  # bo's
    assert "says bo" in stored
    await eventually(lambda: not held_in_process("says zenobia"))
    trail = await owner_of(server.app.core).fetch("SELECT actor FROM audit")
    assert [each["actor"][:7] for each in trail] == ["erased-"]
    assert (await asked(server, "DELETE", mine, of("zenobia"))).status_code == 404


@pytest.mark.parametrize("user", ["guild/ana", "ana/export", "export", "/", "a b?c#d%2Fe", "ü"])
async def test_a_user_is_taken_out_and_erased_whatever_the_id(
    start: StartServer, user: str
) -> None:
    """Game platforms name users as they like."""
    server = await start(auth_secret=SECRET)
    client = await server.connect()
    await client.open_session("wren", token=of(user))
    await client.send(SAID)
    await client.expect("memory.stored")
    path = f"/v1/users/{quote(user, safe='')}"
    taken = await asked(server, "GET", f"{path}/export", of(user))
    assert taken.status_code == 200, taken.text
    assert (taken.json()["user"], WORD in taken.text) == (user, True)
    erased = await asked(server, "DELETE", path, of(user))
    assert (erased.status_code, erased.json()["relationships"]) == (200, 1), erased.text
    assert WORD not in await stored_text(server)


async def test_erasing_a_user_revives_no_token(start: StartServer) -> None:
    """What was revoked stays so, though nothing tells whose it was."""
    server = await start(auth_secret=SECRET)
    signed = of("zenobia")
    client = await server.connect(token=signed)
    await client.open_session("wren")
    admin = of("op", scopes=["admin"])
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/v1/admin/revocations"
        headers = {"authorization": f"Bearer {admin}"}
        await http.post(url, json={"user": "zenobia"}, headers=headers)
    answer = await asked(server, "DELETE", "/v1/users/zenobia", admin)
    assert answer.status_code == 200, answer.text
    assert "zenobia" not in await stored_text(server)
    assert (await asked(server, "GET", "/v1/relationships", signed)).status_code == 401


async def test_an_operator_who_takes_a_user_out_is_in_the_trail(start: StartServer) -> None:
    """With every companion."""
    server = await start(auth_secret=SECRET)
    client = await server.connect(token=of("ana"))
    await client.open_session("wren")
    await client.send(SAID)
    await client.expect_all("response.done", "memory.stored")
    admin = of("op", scopes=["admin"])
    answer = await asked(server, "GET", "/v1/users/ana/export", admin)
    (relationship,) = answer.json()["relationships"]
    assert SAID in json.dumps(relationship)
    assert relationship["audit"][-1] | {"happened_at": ""} == {
        "actor": "op", "action": "export", "subject": "everything", "happened_at": "",
    }  # fmt: skip


async def kept_of(w: World) -> str:
    """What is stored of what was said, once everything is done."""
    await w.settled()
    return await stored_text(w.server)


async def test_what_is_not_to_be_remembered_is_answered_and_let_go(start: StartServer) -> None:
    """No memory, no note, no episode; after the session not the words either."""
    async with world(start, model=False) as w:
        client = await w.talk("My dog is called Scout")
        await client.send_raw(
            {"type": "message.send", "id": "m9", "text": f"{SAID}. My goal is to play it",
             "remember": False}
        )  # fmt: skip
        accepted = await client.expect("message.accepted")
        assert accepted["remembered"] is False
        await client.expect("response.done")
        await w.settled()
        assert (await w.request("GET", "/memories"))["memories"][0]["content"].endswith("Scout")
        assert WORD not in json.dumps((await w.request("GET", "/records"))["records"])
        assert WORD in json.dumps((await w.context("And then?"))["messages"])  # while it goes on
        await w.next_day()
        assert WORD not in await kept_of(w)
        assert "scout" in await kept_of(w)
        assert (
            await owner_of(w.server.app.core).fetchval(
                "SELECT count(*) FROM turns WHERE message_id = 'm9'"
            )
            == 1
        )  # so that it is not answered twice


async def test_what_was_told_to_be_kept_stays_when_it_is_said_again_and_not(
    start: StartServer,
) -> None:
    """Letting go of the second takes nothing along that was said or written on purpose."""
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
        said = (await w.request("GET", "/export"))["turns"]
        assert [each["text"] for each in said if each["speaker"] == "user"] == [
            "My dog is called Scout", "I live in Porto",
        ]  # fmt: skip
        known = [each["content"] for each in (await w.request("GET", "/memories"))["memories"]]
        assert "My dog is called Scout" in known
        assert await w.records("vault")
        assert "Scout" in str(await w.records("profile"))


async def test_nothing_is_remembered_before_its_user_agrees(start: StartServer) -> None:
    """Where the companion asks for it; from then on it is."""
    async with world(start, model=False) as w:
        settings = CompanionSettings(consent="required")
        await w.server.app.core.companions.put(
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
        assert WORD not in await kept_of(w)
        assert "scout" in await kept_of(w)


@pytest.mark.parametrize("sleeping", [False, True], ids=["awake", "asleep"])
async def test_the_transcript_goes_after_its_days(start: StartServer, sleeping: bool) -> None:
    """What was remembered of it stays; also of who has not been there for long."""
    days = {} if sleeping else {"transcript": 10}
    async with world(start, model=False, retention_days=days) as w:
        await w.talk("I live in Porto", "ok, grey, ok")
        await w.next_day()
        owner = owner_of(w.server.app.core)
        if sleeping:
            settings = CompanionSettings(retention_days={"transcript": 10})
            await w.server.app.core.companions.put(
                CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
            )
            await owner.execute("UPDATE relationships SET due_at = NULL")
            await owner.execute("UPDATE relationships SET woken_at = '2026-05-01'")
        for _ in range(12):
            await w.next_day()
        await w.settled()
        said = await owner.fetch("SELECT content FROM turns WHERE content <> ''")
        assert said == []
        memories = [each["content"] for each in await owner.fetch("SELECT content FROM memories")]
        assert memories == ["I live in Porto"]
        words = await owner.fetch("SELECT DISTINCT term FROM memory_terms")
        assert "grey" not in {word["term"] for word in words}
        assert (await w.context("Where do I live?"))["memories"]


async def test_what_outlives_its_transcript_is_read_back(start: StartServer) -> None:
    """An export of it is a file that an import takes."""
    async with world(start, model=False, retention_days={"transcript": 3}) as w:
        await w.talk("I live in Porto", "My dog is called Scout")
        await w.next_day()
        await w.talk("I live in Porto")
        for _ in range(5):
            await w.next_day()
        exported = await w.request("GET", "/export")
        assert {each["text"] for each in exported["turns"]} == {""}
        await w.request("DELETE", "/memories")
        relationship, w.relationship = w.relationship, "import"  # type: ignore[assignment]
        await w.request("POST", "?companion=wren", exported)
        w.relationship = relationship
        again = await w.request("GET", "/export")
        known = [{(each["content"], len(each["again"])) for each in one["memories"]}
                 for one in (exported, again)]  # fmt: skip
        assert known[0] == known[1] == {("I live in Porto", 1), ("My dog is called Scout", 0)}
        assert (await w.context("Where do I live?"))["memories"]
        page = await w.request("GET", "/sessions")
        assert all(each["turns"] == 0 for each in page["sessions"]), page


@pytest.mark.parametrize("read_back", [False, True], ids=["here", "read-back"])
async def test_what_outlives_its_transcript_is_forgotten(
    start: StartServer, read_back: bool
) -> None:
    """A note goes with the session that it was made of, of which nothing else is left."""
    async with world(start, model=True, retention_days={"transcript": 3}) as w:
        client = await w.talk("ok, grey, ok")
        await client.close()
        for _ in range(5):
            await w.next_day()
        assert (await w.request("GET", "/memories"))["memories"] == []
        assert "grey" in str(await w.records("scratchpad"))
        if read_back:
            exported = await w.request("GET", "/export")
            await w.request("DELETE", "/memories")
            relationship, w.relationship = w.relationship, "import"  # type: ignore[assignment]
            await w.request("POST", "?companion=wren", exported)
            w.relationship = relationship
            await w.settled()
        assert "grey" in str(await w.records("scratchpad"))
        session = await owner_of(w.server.app.core).fetchval("SELECT session_id FROM turns LIMIT 1")
        await w.request("DELETE", f"/memories?session={session}")
        assert "grey" not in await kept_of(w)


async def test_unsent_words_are_not_stored(start: StartServer) -> None:
    """They travel with every keystroke; only what is prepared for them holds them, in memory."""
    server = await start(pause_ms=50)
    client = await server.session()
    await client.draft(f"Do you know where {SAID}?")
    await client.expect("context.ready")
    assert "PreparedContext" in held_in_process(WORD)
    assert WORD not in await stored_text(server)
