"""How a line came about: a route tells the prompt to the byte, until it is forgotten."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from foremind.domain.turn import MAX_PROMPTS
from foremind.memory.expiry import RetentionEnforcer
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.hosting import hosting, put_minds
from tests.acceptance.world import World, world
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

FACT = "My sister Klara paints boats in Porto"
QUESTION = "What does my sister Klara paint?"


class Asking:
    """Requests of one user to a server, and what its model was given."""

    def __init__(
        self, server: RunningServer, model: ScriptedModel, http: httpx2.AsyncClient
    ) -> None:
        self.server = server
        self.model = model
        self.http = http

    async def get(self, path: str, bearer: str | None = None, user: str = "ana") -> httpx2.Response:
        """Send a request; in open mode as a user."""
        if bearer is None:
            return await self.http.get(path, params={"user": user})
        return await self.http.get(path, headers={"authorization": f"Bearer {bearer}"})

    async def prompt(self, turn: object) -> Any:
        """Return the prompt of a turn."""
        response = await self.get(f"/v1/turns/{turn}/prompt")
        assert response.status_code == 200, response.text
        return response.json()

    async def is_gone(self, turn: object) -> bool:
        """Return whether no prompt of a turn is kept."""
        response = await self.get(f"/v1/turns/{turn}/prompt")
        assert response.status_code in (200, 404), response.text
        return response.status_code == 404

    @property
    def sent(self) -> Any:
        """What the model was given last for a reply."""
        return self.model.script.player_requests[-1]

    async def last_turn(self, speaker: str = "companion") -> int:
        """Return the latest turn of a speaker."""
        query = "SELECT max(id) FROM turns WHERE speaker = $1 AND removed_at IS NULL"
        found: int = await owner_of(self.server.app.core).fetchval(query, speaker)
        return found


@asynccontextmanager
async def asking(
    start: StartServer, script: Script | None = None, **settings: Any
) -> AsyncIterator[Asking]:
    """Serve a model that records what it is given."""
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url, **settings)
        url = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            yield Asking(server, model, http)


async def _socket(a: Asking) -> None:
    client = await a.server.session()
    await client.send(QUESTION)
    await client.expect("response.done")


async def _typed(a: Asking) -> None:
    client = await a.server.session()
    await client.send_raw({"type": "draft.update", "text": QUESTION})
    await client.expect("context.ready")
    await client.send(QUESTION)
    assert (await client.expect("message.accepted"))["context"] == "hit"
    await client.expect("response.done")


async def _regenerated(a: Asking) -> None:
    client = await a.server.session()
    await client.send(QUESTION, "m9")
    await client.expect("response.done")
    await client.regenerate("m9")
    await client.expect("response.done")


async def _cancelled(a: Asking) -> None:
    a.model.script.hold_before, a.model.script.hold_after = asyncio.Event(), 1
    client = await a.server.session()
    await client.send(QUESTION)
    created = await client.expect("response.created")
    await client.expect("response.output_text.delta")
    await client.cancel(created["response_id"])
    assert (await client.expect("response.done"))["status"] == "cancelled"


async def _failed(a: Asking) -> None:
    a.model.script.cut_after = 1
    client = await a.server.session()
    await client.send(QUESTION)
    assert (await client.expect("response.done"))["status"] == "failed"


async def _turn(a: Asking) -> None:
    body = {"id": "t1", "companion": "wren", "user": "ana", "text": QUESTION}
    response = await a.http.post("/v1/turns", json=body | {"settings": {"recall_limit": 3}})
    assert response.status_code == 200, response.text


async def _completion(a: Asking) -> None:
    body = {"model": "wren", "messages": [{"role": "user", "content": QUESTION}]}
    response = await a.http.post("/v1/chat/completions?user=ana", json=body)
    assert response.status_code == 200, response.text


async def _response(a: Asking) -> None:
    response = await a.http.post(
        "/v1/responses?user=ana", json={"model": "wren", "input": QUESTION}
    )
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    "say",
    [_socket, _typed, _regenerated, _cancelled, _failed, _turn, _completion, _response],
    ids=lambda say: say.__name__.strip("_"),
)
async def test_a_reply_tells_what_it_was_made_of(
    start: StartServer, say: Callable[[Asking], Awaitable[None]]
) -> None:
    """Its prompt byte for byte, its memories with why, and every setting in force for it."""
    async with asking(start) as a:
        client = await a.server.session()
        await client.send(FACT)
        await client.expect_all("response.done", "memory.stored")
        await client.close()
        await say(a)
        reply, message = await a.last_turn(), await a.last_turn("user")
        told = await a.prompt(reply)
        assert told["messages"] == a.sent["messages"]
        assert QUESTION in told["messages"][-1]["content"]
        assert (told["tools"], told["model"]) == ([], a.sent["model"])
        assert await a.prompt(message) == told
        (memory,) = [memory for memory in told["memories"] if memory["content"] == FACT]
        assert 0 < memory["score"] <= 1 and 0 < memory["significance"] <= 1
        assert memory["why"]["cosine"] > 0 and memory["why"]["keyword"] > 0
        assert {"name", "score"} == set(memory["why"]["reasons"][0])
        relationship = (await a.get("/v1/relationships")).json()[0]["id"]
        config = (await a.get(f"/v1/relationships/{relationship}/config")).json()
        settings = {name: config[name] for name in told["settings"]}
        if say is _turn:
            settings["recall_limit"] = {"value": 3, "from": "turn"}
        assert told["settings"] == settings
        assert not {name for name in told["settings"] if "key" in name and "word" not in name}


def _of(
    path: str, method: str = "DELETE", body: object = None
) -> Callable[[World], Awaitable[None]]:
    async def erase(w: World) -> None:
        memory = (await w.memories())[FACT]["id"]
        (session, *_) = (await w.request("GET", "/sessions"))["sessions"]
        turn = await owner_of(w.server.app.core).fetchval("SELECT min(id) FROM turns")
        await w.request(method, path.format(memory=memory, session=session["id"], turn=turn), body)

    return erase


async def _erase_record(w: World) -> None:
    written = {"layer": "vault", "content": "The boat is blue"}
    record = (await w.request("POST", "/records", written))["id"]
    await w.request("DELETE", f"/records/{record}")


async def _write_over(w: World) -> None:
    for core in ("Ana has a sister", "Ana has two sisters"):
        await w.request("POST", "/records", {"layer": "hot", "content": core})


async def _forget_what_is_nowhere(w: World) -> None:
    assert (await w.response_to("DELETE", "/memories?about=Zanzibar")).status_code == 404


async def _expire(w: World) -> None:
    await w.request("PATCH", "/config", {"settings": {"retention_days": {"transcript": 1}}})
    for _ in range(3):
        await w.next_day()


async def _end_session_with_state(w: World) -> None:
    await w.request("PATCH", "/state", {"task": "Find the boat"})
    client = await w.server.session()
    await client.send("Where is it?")
    await client.expect("response.done")
    await client.close()
    await w.next_day()


async def _end_session_with_unkept(w: World) -> None:
    client = await w.server.session()
    await client.send_raw(
        {"type": "message.send", "id": "u1", "text": "Between us: I am broke", "remember": False}
    )
    await client.expect("response.done")
    await client.close()
    await w.next_day()


@pytest.mark.parametrize(
    ("erase", "word"),
    [
        (_of("/memories/{memory}"), "Klara"),
        (_of("/memories?turn={turn}"), "Klara"),
        (_of("/memories?session={session}"), "Klara"),
        (_of("/memories?about=Klara"), "Klara"),
        (_of("/memories"), "Klara"),
        (_of("/memories/{memory}", "PATCH", {"content": "My sister Eva paints ships"}), "Klara"),
        (_erase_record, ""),
        (_write_over, ""),
        (_forget_what_is_nowhere, ""),
        (_expire, ""),
        (_end_session_with_state, "the boat"),
        (_end_session_with_unkept, "broke"),
    ],
    ids=["memory", "turn", "session", "about", "everything", "correction", "record", "write_over",
         "nowhere", "expiry", "state", "unkept"],
)  # fmt: skip
async def test_whatever_is_forgotten_takes_the_prompts_along(
    start: StartServer, erase: Callable[[World], Awaitable[None]], word: str
) -> None:
    """Those that may hold it; a dry run takes none."""
    async with world(start, model=True) as w:
        await (await w.talk(FACT, QUESTION)).close()
        owner = owner_of(w.server.app.core)
        count = "SELECT count(*) FROM reply_prompts WHERE prompt ILIKE $1"
        assert await owner.fetchval(count, "%Klara%") == 2
        await w.request("DELETE", "/memories?about=Klara&dry_run=true")
        assert await owner.fetchval(count, "%Klara%") == 2
        await erase(w)
        assert await owner.fetchval(count, f"%{word}%") == 0


async def test_withdrawing_consent_leaves_no_prompts(start: StartServer) -> None:
    """What is remembered stays until it is erased."""
    async with world(start, model=True) as w:
        await put_minds(w.server, "wren", mind=None, consent="required")
        client = await w.talk()
        for text in ("Hello", FACT):
            await client.send(text)
            await client.expect("response.done")
            await w.request("PATCH", "/config", {"consent": True})
        owner = owner_of(w.server.app.core)
        assert await owner.fetchval("SELECT count(*) FROM reply_prompts") == 2
        await w.request("PATCH", "/config", {"consent": False})
        assert await owner.fetchval("SELECT count(*) FROM reply_prompts") == 0


async def test_another_reply_or_message_leaves_the_prompts_before_it(start: StartServer) -> None:
    """And a reply that is chosen again has its own."""
    script = Script(background=background_answer)
    script.reply = lambda _: [f"Reply {len(script.player_requests)}"]
    async with asking(start, script) as a:
        client = await a.server.session()
        await client.send(FACT, "m1")
        await client.expect("response.done")
        first = await a.last_turn()
        await client.send(QUESTION, "m2")
        await client.expect("response.done")
        second, asked = await a.last_turn(), a.sent
        await client.regenerate("m2")
        await client.expect("response.done")
        third = await a.last_turn()
        assert (await a.prompt(third))["messages"] == a.sent["messages"]
        assert await a.is_gone(second)
        await client.choose("m2", 0)
        await client.expect("response.chosen")
        chosen = await a.last_turn()
        assert chosen not in (second, third)
        assert (await a.prompt(first))["messages"] == a.model.script.player_requests[0]["messages"]
        assert (await a.prompt(chosen))["messages"] == asked["messages"]
        await client.edit("m2", "What does Klara do?", "m3")
        await client.expect("response.done")
        assert "Klara do?" in (await a.prompt(await a.last_turn()))["messages"][-1]["content"]
        assert await a.is_gone(chosen)
        prompts = await owner_of(a.server.app.core).fetch("SELECT prompt FROM reply_prompts")
        assert QUESTION not in str(prompts)
        assert not await a.is_gone(first)


@pytest.mark.parametrize("by", ["erasure", "expiry"])
async def test_a_reply_in_flight_keeps_nothing_of_what_is_removed(
    start: StartServer, by: str
) -> None:
    """An erasure stops it; what expires leaves it, without what it was made of."""
    script = Script(reply=lambda _: ["It", " is"], background=background_answer)
    async with asking(start, script) as a:
        client = await a.server.session()
        await client.send(FACT)
        await client.expect_all("response.done", "memory.stored")
        script.hold_before, script.hold_after = asyncio.Event(), 1
        await client.send(QUESTION)
        await client.expect("response.output_text.delta")
        assert "Klara paints" in str(a.sent["messages"])
        relationship = (await a.get("/v1/relationships")).json()[0]["id"]
        core = a.server.app.core
        if by == "erasure":
            path = f"/v1/relationships/{relationship}/memories?about=Klara"
            assert (await a.http.delete(path, params={"user": "ana"})).status_code == 200
        else:
            parts = core.database, core.ingester, core.embedder, core.runtime.clock
            later = core.runtime.clock.now() + timedelta(days=1)
            await RetentionEnforcer(*parts).expire_transcript(
                int(relationship), ("Ana", "Wren"), later
            )
        script.hold_before.set()
        assert (await client.expect("response.done"))["text"] == ("It is" if by == "expiry" else "")
        if by == "expiry":
            assert await a.is_gone(await a.last_turn())
        assert not await owner_of(core).fetch("SELECT * FROM reply_prompts")


async def test_the_latest_prompts_are_kept_also_by_a_server_that_starts(start: StartServer) -> None:
    """Earlier ones make room; the error says what is kept."""
    async with asking(start) as a:
        client = await a.server.session()
        turns = []
        for number in (1, 2):
            await client.send(f"Message {number}")
            await client.expect("response.done")
            turns.append(await a.last_turn())
        fill = (
            "INSERT INTO reply_prompts SELECT relationship_id, number + n, 0, reply_id, prompt "
            "FROM reply_prompts, generate_series(1000, $1::integer) AS n WHERE reply_id = $2"
        )
        await owner_of(a.server.app.core).execute(fill, 1000 + MAX_PROMPTS - 3, turns[1])
        assert not await a.is_gone(turns[0])
        again = await start(llm_url=a.model.url)
        url = f"http://127.0.0.1:{again.port}/v1/turns/{turns[0]}/prompt?user=ana"
        assert (await a.http.get(url)).json() == await a.prompt(turns[0])
        owner = owner_of(a.server.app.core)
        await owner.execute("UPDATE reply_prompts SET number = -number WHERE number > 1000")
        await client.send("Message 3")
        await client.expect("response.done")
        assert await owner.fetchval("SELECT count(*) FROM reply_prompts") == MAX_PROMPTS
        await owner.execute("UPDATE reply_prompts SET number = 10000 - number WHERE number < 0")
        await client.send("Message 4")
        await client.expect("response.done")
        gone = await a.get(f"/v1/turns/{turns[0]}/prompt")
        assert gone.status_code == 404
        assert f"the last {MAX_PROMPTS} replies" in gone.json()["error"]["message"]


async def test_nobody_else_is_told(start: StartServer) -> None:
    """A turn of another user is as one that there is not; admins name the user."""
    async with asking(start, auth_secret=SECRET) as a:
        body = {"id": "t1", "companion": "wren", "text": FACT}
        headers = {"authorization": f"Bearer {token()}"}
        turn = (await a.http.post("/v1/turns", json=body, headers=headers)).json()["turn_id"]
        path, unknown = f"/v1/turns/{turn}/prompt", "/v1/turns/999999/prompt"
        assert (await a.get(path, token())).json()["messages"] == a.sent["messages"]
        admin = token(sub="root", scopes=["admin"])
        assert (await a.get(f"{path}?user=ana", admin)).status_code == 200
        for other in (token(sub="bo"), token(companions=["mara"]), admin):
            refused, missing = await a.get(path, other), await a.get(unknown, other)
            assert refused.status_code == missing.status_code == 404
            assert refused.json() == missing.json()
        assert (await a.get(path, token(scopes=["chat"]))).status_code == 403
        audit = await owner_of(a.server.app.core).fetch("SELECT actor, subject FROM audit")
        assert [tuple(entry) for entry in audit] == [("root", "prompts")]


async def test_a_prompt_with_what_is_not_stored_is_not_kept(start: StartServer) -> None:
    """What a front end sends around a question, or of a conversation before it."""
    said = [
        [{"role": "user", "content": f"<context>\nThe vault is at 7\n</context>\n\n{QUESTION}"}],
        [
            {"role": "user", "content": "I hid the vault"},
            {"role": "assistant", "content": "Did you?"},
            {"role": "user", "content": "What do you think of ships, then?"},
        ],
    ]
    async with asking(start) as a:
        for messages in said:
            body = {"model": "wren", "messages": messages}
            response = await a.http.post("/v1/chat/completions?user=ana", json=body)
            assert response.status_code == 200, response.text
            assert "vault" in str(a.sent["messages"])
            assert await a.is_gone(await a.last_turn())
        prompts = await owner_of(a.server.app.core).fetch("SELECT prompt FROM reply_prompts")
        assert "vault" not in str(prompts)


GIVE = {"name": "give", "schema": {"properties": {"item": {"type": "string"}}}}


@pytest.mark.parametrize("mind", ["world", None])
async def test_a_line_in_a_world_tells_what_it_was_made_of(
    start: StartServer, mind: str | None
) -> None:
    """The host is told, and of a mind that a player has alone the player, until it forgets."""
    script = Script(
        reply=lambda _: ["Here you are."], tool_calls=lambda _: [("give", '{"item": "rope"}')]
    )
    async with (
        asking(start, script, auth_secret=SECRET, llm_tools=True) as a,
        hosting(await start(), "mara") as host,  # on a server that needs no token
    ):
        game = token(sub="game", scopes=["world"], worlds=["vale"])
        await put_minds(a.server, "mara", mind=mind)
        await host.scene("tavern", players=["ana", "bo"], minds=["mara"])
        await host.request("PUT", "/actions", {"actions": [GIVE]})
        body = {"id": "t1", "text": "Mara, have you a rope?", "world": "vale", "scene": "tavern"}
        headers = {"authorization": f"Bearer {token()}"}
        answer = (await a.http.post("/v1/turns", json=body, headers=headers)).json()
        line = f"/v1/worlds/vale/events/{quote(answer['turn_id'] + '>mara')}"
        told = await a.get(f"{line}/prompt", game)
        assert told.status_code == 200, told.text
        prompt = told.json()
        assert prompt["messages"] == a.sent["messages"]
        assert prompt["tools"] == a.sent["tools"] and len(prompt["tools"]) == 1
        assert prompt["settings"]["recall_limit"]["from"] == "server"
        assert (await a.get(f"{line}{quote('#0')}/prompt", game)).json() == prompt
        missing = await a.get("/v1/worlds/vale/events/none/prompt", token())
        assert missing.status_code == 404
        own = await a.get(f"{line}/prompt", token())
        if mind is None:
            assert own.json() == prompt
        for refused in (
            own if mind == "world" else missing,
            await a.get(f"{line}/prompt", token(sub="bo")),
            await a.get(f"{line}/prompt", token(sub="x", scopes=["world"], worlds=["elsewhere"])),
        ):
            assert refused.status_code in (403, 404)
            if refused.status_code == 404:
                assert refused.json() == missing.json()
        await host.request("DELETE", f"/events/{quote(answer['turn_id'])}")
        assert (await a.get(f"{line}/prompt", game)).status_code == 404
        assert not await owner_of(a.server.app.core).fetch("SELECT * FROM reply_prompts")
