"""`POST /v1/turns` answers one message over HTTP, once, and as over a socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from foremind.app.configuration import load_settings
from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from foremind.runtime.logs import configure_logging
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.test_every_route import assert_refused
from tests.conftest import (
    PATIENCE,
    RunningServer,
    StartServer,
    eventually,
    eventually_async,
    owner_of,
)
from tests.unit.auth.test_access_tokens import SECRET, token

EVENTS = {"accept": "text/event-stream"}


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model that answers with fixed words."""
    async with scripted_model(Script(reply=lambda _: ["Of ", "course."])) as model:
        yield model


class Door:
    """The route of one server, as a game without sockets uses it."""

    def __init__(self, server: RunningServer, http: httpx2.AsyncClient) -> None:
        self.server = server
        self._http = http

    async def turn(
        self, text: str, turn_id: str = "t1", /, bearer: str | None = None, **fields: Any
    ) -> httpx2.Response:
        """Make a turn with the example companion; in open mode as Ana."""
        return await self._http.post(
            "/v1/turns", json=self.body(text, turn_id, bearer, fields), headers=_headers(bearer)
        )

    @asynccontextmanager
    async def stream(
        self, text: str, turn_id: str = "t1", bearer: str | None = None, **fields: Any
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Make a turn, in open mode as Ana, whose events are yielded as they come."""
        body, headers = self.body(text, turn_id, bearer, fields), EVENTS | _headers(bearer)
        async with self._http.stream("POST", "/v1/turns", json=body, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].partition(";")[0] == "text/event-stream"
            yield _events(response)

    @staticmethod
    def body(text: str, turn_id: str, bearer: str | None, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a turn."""
        user = {} if bearer else {"user": "ana"}
        return {"id": turn_id, "companion": "wren", "text": text} | user | fields

    async def stored(self) -> list[tuple[str, str, str]]:
        """Return the speaker, status and text of all turns."""
        rows = await owner_of(self.server.app.core).fetch(
            "SELECT speaker, status, content FROM turns ORDER BY id"
        )
        return [tuple(row) for row in rows]

    async def wait_for_turns(self, count: int) -> None:
        """Wait until so many turns are stored."""

        async def are_stored() -> bool:
            return len(await self.stored()) == count

        await eventually_async(are_stored)


async def door_to(server: RunningServer) -> Door:
    """Return the route of a server."""
    address = f"http://127.0.0.1:{server.port}"
    return Door(
        server, await server.entered(httpx2.AsyncClient(base_url=address, timeout=PATIENCE))
    )


def _headers(bearer: str | None) -> dict[str, str]:
    return {} if bearer is None else {"authorization": f"Bearer {bearer}"}


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    name = ""
    async for line in response.aiter_lines():
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            event: dict[str, Any] = json.loads(value)
            assert event["type"] == name
            yield event


async def test_a_turn_is_answered_whole(start: StartServer, model: ScriptedModel) -> None:
    """The next one recalls what was said in the first, and says which memories it had."""
    door = await door_to(await start(llm_url=model.url))
    answer = (await door.turn("My sister Mira keeps bees in Porto", name="Ana")).json()
    assert answer.pop("turn_id").isdigit()
    assert answer == {
        "duplicate": False,
        "remembered": True,
        "replies": [
            {
                "companion": "wren",
                "text": "Of course.",
                "status": "completed",
                "index": 0,
                "count": 1,
                "cut_off": False,
            }
        ],
        "context": "miss",
        "memories": [],
        "warnings": [],
    }
    owner = owner_of(door.server.app.core)
    await eventually_async(lambda: owner.fetchval("SELECT count(*) = 1 FROM memories"))
    assert await owner.fetchval("SELECT name FROM users") == "Ana"
    (memory,) = (await door.turn("Where does Mira keep her bees?", "t2")).json()["memories"]
    assert memory["content"] == "My sister Mira keeps bees in Porto"
    assert 0 < memory["score"] <= 1 and memory["age"] == "just now"


async def test_a_turn_is_streamed_with_the_events_of_the_socket(
    start: StartServer, model: ScriptedModel
) -> None:
    """In the order in which a socket sends them."""
    door = await door_to(await start(llm_url=model.url))
    async with door.stream("Good morning") as stream:
        context, accepted, created, *pieces, done = [event async for event in stream]
    assert context == {
        "type": "context.ready", "draft": "Good morning", "memories": [], "trigger": "send",
        "lore": [],
    }  # fmt: skip
    assert accepted["turn_id"].isdigit()
    assert (accepted["type"], accepted["id"]) == ("message.accepted", "t1")
    assert (accepted["duplicate"], accepted["context"]) == (False, "miss")
    assert accepted["ahead"] == "nothing"
    response_id = created["response_id"]
    assert created == {
        "type": "response.created", "response_id": response_id, "message_id": "t1",
        "companion": "wren", "index": 0, "count": 1,
    }  # fmt: skip
    assert pieces == [
        {"type": "response.output_text.delta", "response_id": response_id, "delta": delta}
        for delta in ("Of ", "course.")
    ]
    assert done == {
        "type": "response.done", "response_id": response_id, "status": "completed",
        "text": "Of course.", "error": None, "message_id": "t1", "index": 0, "count": 1,
        "used": [], "cut_off": False, "companion": "wren",
    }  # fmt: skip
    async with door.stream("Good morning") as stream:
        repeated = [event async for event in stream]
    assert [event["type"] for event in repeated] == [
        "message.accepted", "response.created", "response.output_text.delta", "response.done",
    ]  # fmt: skip
    assert (repeated[0]["duplicate"], repeated[-1]["text"]) == (True, "Of course.")


async def test_an_id_is_answered_once(start: StartServer, model: ScriptedModel) -> None:
    """Again it returns the stored reply; with another text it is refused."""
    door = await door_to(await start(llm_url=model.url))
    first, again = [(await door.turn("Good morning")).json() for _ in range(2)]
    assert again == first | {"duplicate": True}
    refused = await door.turn("Good evening")
    assert_refused(refused, 409)
    assert refused.json()["error"]["param"] == "id"
    assert len(await door.stored()) == 2


async def test_requests_with_one_id_at_the_same_time_get_one_reply(start: StartServer) -> None:
    """Whichever came later waits for what the first is answered, also on a slow model."""
    script = Script(reply=lambda _: ["Yes."], hold_before=asyncio.Event())
    async with scripted_model(script) as model:
        door = await door_to(await start(llm_url=model.url))
        sent = [asyncio.create_task(door.turn("Are you there?")) for _ in range(5)]
        await eventually(lambda: len(door.server.app.registry.sessions()) == 5)
        await eventually(lambda: len(script.player_requests) == 1)
        assert script.hold_before is not None
        script.hold_before.set()
        answers = [(await task).json() for task in sent]
    assert {answer["replies"][0]["text"] for answer in answers} == {"Yes."}
    assert len({answer["turn_id"] for answer in answers}) == 1
    assert [answer["duplicate"] for answer in answers].count(False) == 1
    assert len(script.player_requests) == 1


async def test_a_session_is_logged_once_as_it_closes(start: StartServer) -> None:
    """Each window, that is; not each turn that is made over HTTP, which opens none."""
    configure_logging(load_settings(log_level="info"))
    server = await start()
    first, second = await server.connect(), await server.connect()
    first_id, second_id = [
        (await client.open_session("wren", user_id="ana", name="Ana"))["session_id"]
        for client in (first, second)
    ]
    door = await door_to(server)
    with capture_logs() as logged:
        assert (await door.turn("Hello", "t4")).status_code == 200
        await server.app.registry.drain(0)
        await server.app.registry._tasks.finish()
    closed = [entry["session_id"] for entry in logged if entry["event"] == "session.closed"]
    assert sorted(closed) == sorted([first_id, second_id])


async def test_a_client_that_leaves_a_stream_stops_the_reply(
    start: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What it was sent until then is stored; the model is told to stop; it is no error."""
    script = Script(
        reply=lambda _: ["One ", "two ", "three"], hold_before=asyncio.Event(), hold_after=1
    )
    async with scripted_model(script) as model:
        door = await door_to(await start(llm_url=model.url))
        async with door.stream("Count for me") as stream:
            async for event in stream:
                if event["type"] == "response.output_text.delta":
                    break
        await door.wait_for_turns(2)
        assert (await door.stored())[-1] == ("companion", "cancelled", "One ")
        await eventually(lambda: script.finished == ["left"])
        again = (await door.turn("Count for me")).json()
        assert script.hold_before is not None
        script.hold_before.set()  # for background requests, so that the model can stop
    (reply,) = again["replies"]
    assert (reply["text"], reply["status"]) == ("One ", "cancelled")
    assert "ClientDisconnect" not in caplog.text


async def test_a_client_that_leaves_a_hanging_model_is_answered_when_it_returns(
    start: StartServer,
) -> None:
    """Nothing had been said, so that the same id is answered then."""
    script = Script(reply=lambda _: ["Yes."], hold_before=asyncio.Event())
    async with scripted_model(script) as model:
        door = await door_to(await start(llm_url=model.url))
        waiting = asyncio.create_task(door.turn("Are you there?"))
        await eventually(lambda: len(script.player_requests) == 1)
        await door.wait_for_turns(1)  # it is stored while the model is asked
        waiting.cancel()
        await asyncio.wait({waiting})
        await eventually(lambda: script.finished == ["left"])
        await eventually(lambda: not door.server.app.registry.sessions())
        assert [turn[0] for turn in await door.stored()] == ["user"]
        assert script.hold_before is not None
        script.hold_before.set()
        answer = (await door.turn("Are you there?")).json()
    assert answer["replies"][0]["text"] == "Yes."
    assert len(await door.stored()) == 2


async def test_a_failing_model_is_an_error_that_may_be_retried(start: StartServer) -> None:
    """The message is stored, and the same id is answered once the model is back."""
    async with scripted_model(Script(reply=lambda _: ["Yes."], status=500)) as model:
        door = await door_to(await start(llm_url=model.url))
        failed = await door.turn("Are you there?")
        assert_refused(failed, 503)
        assert failed.json()["error"]["retryable"] is True
        async with door.stream("And now?", "t2") as stream:
            done = [event async for event in stream][-1]
        assert (done["type"], done["status"], done["text"]) == ("response.done", "failed", "")
        assert done["error"]["code"] == failed.json()["error"]["code"]
        model.script.status = 200
        assert (await door.turn("Are you there?")).json()["replies"][0]["text"] == "Yes."


async def test_a_reply_that_breaks_off_is_kept_as_far_as_it_came(start: StartServer) -> None:
    """It says so, also when the same id is sent again."""
    script = Script(reply=lambda _: ["One ", "two ", "three"], cut_after=2)
    async with scripted_model(script) as model:
        door = await door_to(await start(llm_url=model.url))
        for _ in range(2):
            (reply,) = (await door.turn("Count for me")).json()["replies"]
            assert (reply["text"], reply["status"]) == ("One two ", "failed")


async def test_a_message_is_answered_by_the_next_server_if_its_own_stops(
    start: StartServer,
) -> None:
    """It was accepted before; it is neither lost nor stored again."""
    script = Script(reply=lambda _: ["Yes."], hold_before=asyncio.Event())
    async with scripted_model(script) as model:
        first, second = [await door_to(await start(llm_url=model.url)) for _ in range(2)]
        waiting = asyncio.create_task(first.turn("Are you there?"))
        await eventually(lambda: len(script.player_requests) == 1)
        await first.server.app.registry.drain(0)
        stopped = await waiting
        assert_refused(stopped, 503)
        assert stopped.json()["error"]["code"] == "draining"
        assert_refused(await first.turn("Are you still there?", "t2"), 503)
        assert script.hold_before is not None
        script.hold_before.set()
        answer = (await second.turn("Are you there?")).json()
    assert answer["replies"][0]["text"] == "Yes."
    assert [turn[0] for turn in await second.stored()] == ["user", "companion"]


async def test_a_player_speaks_for_itself_and_a_host_for_its_players(
    start: StartServer, model: ScriptedModel
) -> None:
    """Scopes and companions of the token hold as on a socket."""
    door = await door_to(await start(llm_url=model.url, auth_secret=SECRET))
    player = token(sub="ana", name="Ana")
    assert (await door.turn("Good morning", bearer=player)).status_code == 200
    assert (await door.turn("Good day", "t2", bearer=player, user="ana")).status_code == 200
    host = token(sub="game", scopes=["host", "chat"])
    answer = await door.turn("Good evening", "t3", bearer=host, user="ben", name="Ben")
    assert (answer.status_code, answer.json()["memories"]) == (200, [])
    rows = await owner_of(door.server.app.core).fetch(
        "SELECT external_id, name FROM users ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [("ana", "Ana"), ("ben", "Ben")]
    for bearer, fields, status, param in (
        (player, {"user": "ben"}, 403, "user"),
        (player, {"name": "Queen"}, 400, "name"),
        (token(sub="ana", companions=["rook"]), {}, 403, "companion"),
        (token(sub="ana", scopes=["memory:read"]), {}, 403, "token"),
        (token(sub="game", scopes=["host"]), {"user": "ben"}, 403, "token"),
        ("x", {}, 401, "token"),
    ):
        refused = await door.turn("Good night", "t4", bearer=bearer, **fields)
        assert_refused(refused, status)
        assert refused.json()["error"]["param"] == param
    assert len(await door.stored()) == 6


async def test_a_host_that_is_shown_memories_leaves_a_trace(
    start: StartServer, model: ScriptedModel
) -> None:
    """Whole and streamed; neither the player nor a host that is shown none does."""
    door = await door_to(await start(llm_url=model.url, auth_secret=SECRET))
    owner = owner_of(door.server.app.core)
    player = token(sub="ana", name="Ana")
    await door.turn("My sister Mira keeps bees in Porto", "t1", bearer=player)
    await eventually_async(lambda: owner.fetchval("SELECT count(*) = 1 FROM memories"))
    question = "Where does Mira keep her bees?"
    for number, (scopes, entries) in enumerate(
        [(["chat", "host"], 0), (["chat", "host", "memory:read"], 1), (["admin"], 2)]
    ):
        host = token(sub="game", scopes=scopes)
        answer = await door.turn(question, f"q{number}", bearer=host, user="ana")
        assert len(answer.json()["memories"]) == min(entries, 1)
        assert await owner.fetchval("SELECT count(*) FROM audit") == entries
    async with door.stream(question, "q3", bearer=host, user="ana") as events:
        async for _ in events:
            pass
    assert (await door.turn(question, "q4", bearer=player)).json()["memories"]
    trail = await owner.fetch("SELECT actor, action, subject FROM audit")
    assert [tuple(entry) for entry in trail] == [("game", "read", "memories")] * 3


async def test_what_is_wrong_is_refused_by_name(start: StartServer, model: ScriptedModel) -> None:
    """Nothing is stored of it. What belongs to worlds needs one."""
    door = await door_to(await start(llm_url=model.url))
    for fields, status, param in (
        ({"user": None}, 401, "user"),
        ({"user": ".."}, 400, "user"),
        ({"world": "harbour"}, 400, "scene"),
        ({"scene": {"place": "quay"}}, 400, "scene"),
        ({"to": ["rook"]}, 400, "to"),
        ({"companion": "nobody"}, 404, "companion"),
        ({"settings": {"recall_limit": -1}}, 400, "settings.recall_limit"),
        ({"id": ""}, 400, "id"),
        ({"text": " "}, 400, "text"),
        ({"name": "n" * 65}, 400, "name"),
    ):
        refused = await door.turn("Good morning", **fields)
        assert_refused(refused, status)
        assert refused.json()["error"]["param"] == param, refused.json()
    assert await door.stored() == []
    answered = await door.turn("Good morning", world=None, scene=None, to=None)
    assert answered.status_code == 200


async def test_a_turn_that_is_not_to_be_remembered_leaves_no_memory(
    start: StartServer, model: ScriptedModel
) -> None:
    """It says so; the settings of a turn hold for that turn."""
    door = await door_to(await start(llm_url=model.url))
    secret = await door.turn("My sister Mira keeps bees in Porto", remember=False)
    assert secret.json()["remembered"] is False
    await door.turn("My brother Rui keeps goats in Porto", "t2")
    owner = owner_of(door.server.app.core)
    await eventually_async(lambda: owner.fetchval("SELECT count(*) = 1 FROM memories"))
    asked = "What do Mira and Rui keep?"
    (memory,) = (await door.turn(asked, "t3")).json()["memories"]
    assert "Rui" in memory["content"]
    forgetful = await door.turn(asked, "t4", settings={"recall_limit": 0})
    assert forgetful.json()["memories"] == []


async def test_nothing_is_remembered_without_the_consent_that_is_needed(
    start: StartServer, model: ScriptedModel
) -> None:
    """The message is answered all the same."""
    door = await door_to(await start(llm_url=model.url))
    settings = CompanionSettings(consent="required")
    await door.server.app.core.stores.companions.put(
        CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
    )
    answer = (await door.turn("My sister Mira keeps bees in Porto")).json()
    assert answer["remembered"] is False
    assert answer["replies"][0]["text"] == "Of course."


async def test_a_user_over_the_rate_is_told_when_to_come_back(
    start: StartServer, model: ScriptedModel
) -> None:
    """The rate is that of all the user's connections; another user is answered."""
    door = await door_to(await start(ManualClock(), llm_url=model.url, sends_per_s=0.125))
    assert (await door.turn("Good morning")).status_code == 200
    refused = await door.turn("Good day", "t2")
    assert_refused(refused, 429)
    assert int(refused.headers["retry-after"]) > 0
    assert (await door.turn("Good day", "t2", user="ben")).status_code == 200
