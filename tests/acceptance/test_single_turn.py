"""A turn without a socket is stored, answered and remembered as one over a socket."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from foremind.auth.principal import Principal
from foremind.domain.errors import (
    Conflict,
    Draining,
    InvalidMessage,
    NotAllowed,
    Overloaded,
    RateLimited,
)
from foremind.domain.turn_request import (
    EarlierTurn,
    TurnBegun,
    TurnDone,
    TurnEvent,
    TurnPiece,
    TurnReply,
    TurnRequest,
)
from foremind.domain.user import read_hints
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.conftest import RunningServer, StartServer, eventually, eventually_async, owner_of

ANA = Principal("ana", "Ana")


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """A model that answers with fixed words."""
    async with scripted_model(Script(reply=lambda _: ["Of ", "course."])) as model:
        yield model


def request(text: str, message_id: str = "m1", **fields: object) -> TurnRequest:
    """Return a request to the example companion."""
    return TurnRequest("wren", message_id, text, **fields)  # type: ignore[arg-type]


async def make(
    server: RunningServer, asked: TurnRequest, principal: Principal = ANA
) -> list[TurnEvent]:
    """Make a turn and return all that came of it."""
    async with server.app.turns.turn(principal, asked) as events:
        return [event async for event in events]


async def stored(server: RunningServer) -> list[tuple[str, str, str]]:
    """Return the speaker, status and text of all turns."""
    rows = await owner_of(server.app.core).fetch(
        "SELECT speaker, status, content FROM turns ORDER BY id"
    )
    return [tuple(row) for row in rows]


async def test_a_turn_is_answered_stored_and_recalled_by_the_next(
    start: StartServer, model: ScriptedModel
) -> None:
    """The second one finds the memory of the first in its prompt, and says which."""
    server = await start(llm_url=model.url)
    first = await make(server, request("My sister Mira keeps bees in Porto"))
    begun, *pieces, done = first
    assert isinstance(begun, TurnBegun) and isinstance(done, TurnDone)
    assert (begun.duplicate, begun.context, list(begun.memories)) == (False, "miss", [])
    assert [piece.text for piece in pieces if isinstance(piece, TurnPiece)] == ["Of ", "course."]
    assert (done.status, done.text, done.error) == ("completed", "Of course.", None)
    assert begun.prompt_tokens > done.reply_tokens > 0
    assert await stored(server) == [
        ("user", "completed", "My sister Mira keeps bees in Porto"),
        ("companion", "completed", "Of course."),
    ]
    owner = owner_of(server.app.core)
    await eventually_async(lambda: owner.fetchval("SELECT count(*) = 1 FROM memories"))

    (begun, *_) = await make(server, request("Where does Mira keep her bees?", "m2"))
    assert isinstance(begun, TurnBegun)
    assert [memory.content for memory in begun.memories] == ["My sister Mira keeps bees in Porto"]


async def test_the_same_id_is_answered_once(start: StartServer, model: ScriptedModel) -> None:
    """Again, it returns the stored reply; with another text, it is refused."""
    server = await start(llm_url=model.url)
    (first, *_) = await make(server, request("Good morning"))
    again, created, *rest = await make(server, request("Good morning"))
    assert isinstance(first, TurnBegun) and isinstance(again, TurnBegun)
    assert (again.turn_id, again.duplicate) == (first.turn_id, True)
    assert created == TurnReply(index=0, count=1)
    assert [getattr(event, "text", None) for event in rest] == ["Of course.", "Of course."]
    with pytest.raises(Conflict, match="id: expected one that is not used for another text"):
        await make(server, request("Good evening"))
    assert len(await stored(server)) == 2


async def test_two_requests_with_one_id_get_one_reply(start: StartServer) -> None:
    """The second one waits for what the first is answered."""
    async with scripted_model(
        Script(reply=lambda _: ["Yes."], hold_before=asyncio.Event())
    ) as model:
        server = await start(llm_url=model.url)
        both = [asyncio.create_task(make(server, request("Are you there?"))) for _ in range(2)]
        await eventually(lambda: len(server.app.registry.sessions()) == 2)
        await eventually(lambda: len(model.script.player_requests) == 1)
        assert model.script.hold_before is not None
        model.script.hold_before.set()
        dones = [(await task)[-1] for task in both]
        assert [getattr(done, "text", None) for done in dones] == ["Yes.", "Yes."]
        assert len(model.script.player_requests) == 1


def held_after_a_word() -> Script:
    """Return a script that sends one word, and no more."""
    return Script(
        reply=lambda _: ["One ", "two ", "three"], hold_before=asyncio.Event(), hold_after=1
    )


async def test_leaving_stops_the_reply(start: StartServer) -> None:
    """What was sent until then is stored, as if it had been cancelled."""
    async with scripted_model(held_after_a_word()) as model:
        server = await start(llm_url=model.url)
        async with server.app.turns.turn(ANA, request("Count for me")) as events:
            async for event in events:
                if isinstance(event, TurnPiece):
                    break
        await eventually_async(lambda: _replies(server))
        assert (await stored(server))[-1] == ("companion", "cancelled", "One ")
        await eventually(lambda: not server.app.registry.sessions())


async def test_a_reply_that_is_not_read_is_stopped(start: StartServer) -> None:
    """What waits to be read is bounded."""
    words = Script(reply=lambda _: [f"{number} " * 50 for number in range(1000)])
    async with scripted_model(words) as model:
        server = await start(llm_url=model.url, llm_max_tokens=5000, outbound_bytes=65_536)
        async with server.app.turns.turn(ANA, request("Talk on and on")) as events:
            await eventually_async(lambda: _replies(server))
            with pytest.raises(Overloaded, match="too slowly"):
                _ = [event async for event in events]
        (_, status, text) = (await stored(server))[-1]
        assert status == "cancelled"
        assert 65_536 <= len(text) < 250_000


async def _replies(server: RunningServer) -> bool:
    return len(await stored(server)) == 2


async def test_an_edge_of_a_session_can_be_chosen(start: StartServer, model: ScriptedModel) -> None:
    """A new session begins though one goes on; its prompt has what is said to be earlier."""
    server = await start(llm_url=model.url)
    await make(server, request("Good morning"))
    earlier = [EarlierTurn("user", "We spoke of lanterns"), EarlierTurn("companion", "We did.")]
    await make(server, request("And now of boats", "m2", session="new", earlier=earlier))
    prompt = [message["content"] for message in model.script.player_requests[-1]["messages"]]
    assert prompt[1:3] == ["We spoke of lanterns", "We did."]
    assert not any(content == "Good morning" for content in prompt)
    owner = owner_of(server.app.core)
    assert await owner.fetchval("SELECT count(DISTINCT session_id) FROM turns") == 2
    session = await owner.fetchval("SELECT session_id FROM turns ORDER BY id LIMIT 1")
    await make(server, request("Back again", "m3", session=session))
    assert "Good morning" in str(model.script.player_requests[-1]["messages"])


async def test_a_name_that_is_not_stated_stays_as_it_is(
    start: StartServer, model: ScriptedModel
) -> None:
    """A token without a name, or a door that has none, renames nobody."""
    server = await start(llm_url=model.url)
    await make(server, request("Good morning", hints=read_hints("Europe/Lisbon", None)))
    await make(server, request("Good day", "m2"), Principal("ana", "ana"))
    row = await owner_of(server.app.core).fetchrow("SELECT name, time_zone FROM users")
    assert tuple(row) == ("Ana", "Europe/Lisbon")


async def test_what_is_wrong_is_refused(start: StartServer, model: ScriptedModel) -> None:
    """Nothing is stored of it, and no session stays behind."""
    server = await start(llm_url=model.url, max_text_chars=20)
    for asked, error in (
        (request(" "), InvalidMessage),
        (request("x" * 21), InvalidMessage),
        (request("Good morning", ""), InvalidMessage),
    ):
        with pytest.raises(error):
            await make(server, asked)
    with pytest.raises(NotAllowed):
        await make(server, request("Good morning"), Principal("ana", "Ana", frozenset({"rook"})))
    assert await stored(server) == []
    assert server.app.registry.sessions() == []


async def test_a_user_over_the_rate_is_told_when_to_come_back(
    start: StartServer, model: ScriptedModel
) -> None:
    """The rate is that of all the user's connections."""
    server = await start(ManualClock(), llm_url=model.url, sends_per_s=0.125)
    await make(server, request("Good morning"))
    with pytest.raises(RateLimited) as refused:
        await make(server, request("Good day", "m2"))
    assert refused.value.retry_after_s > 0


async def test_no_turn_begins_while_the_server_drains(
    start: StartServer, model: ScriptedModel
) -> None:
    """Another server takes it."""
    server = await start(llm_url=model.url)
    await server.app.registry.drain(0)
    with pytest.raises(Draining):
        await make(server, request("Good morning"))
