"""A session ends by inactivity, also if the client stays connected, as game servers do."""

from tests.acceptance.test_layers import WITH_AND_WITHOUT_MODEL
from tests.acceptance.world import A_DAY, World, world
from tests.conftest import StartServer, owner_of


async def say(w: World, client: object, *texts: str) -> None:
    """Send messages over an open connection."""
    for text in texts:
        await client.send(text)  # type: ignore[attr-defined]
        await client.expect_all("response.done", "memory.stored")  # type: ignore[attr-defined]
        await w.clock.advance(20)
    await w.wait_until_idle()


@WITH_AND_WITHOUT_MODEL
async def test_an_inactive_session_ends_though_its_socket_stays_open(
    start: StartServer, model: bool
) -> None:
    """It gets an episode and a recap, and later messages over the socket start a new session."""
    async with world(start, model=model) as w:
        client = await w.talk("We decided to sail to Madeira in June with the old boat")
        await w.next_day()
        (episode,) = await w.records("episodes")
        assert "Madeira" in str(episode)
        assert "Madeira" in await w.lines("opening")
        await say(w, client, "Good morning, how is the weather")
        shown = await w.request("GET", "/sessions")
        closed = [
            (session["turns"], session["closed_at"] is not None) for session in shown["sessions"]
        ]
        assert closed == [(2, False), (2, True)]
        if w.model is not None:
            messages = w.model.script.player_requests[-1]["messages"]
            assert [message["role"] for message in messages] == ["system", "user"]


async def test_each_day_over_one_socket_is_a_session(start: StartServer) -> None:
    """A subject of three of them becomes a topic."""
    async with world(start, model=False) as w:
        client = await w.talk("I began to build the lighthouse. My lighthouse needs a lamp")
        for text in (
            "I found a lamp for my lighthouse. The lighthouse is bright now",
            "I painted the lighthouse red. Everybody admires the lighthouse",
        ):
            await w.clock.leap(A_DAY)
            await w.wait_until_idle()
            await say(w, client, text)
        await w.next_day()
        topics = await w.records("topics", "lighth")
        assert len(topics) == 1
        episodes = await w.records("episodes")
        assert len(episodes) == 3


async def test_connections_of_one_user_share_the_next_session(
    start: StartServer,
) -> None:
    """The first message after the inactivity starts it; the other connection joins it."""
    async with world(start, model=False) as w:
        first = await w.talk("I planted a fig tree")
        second = await w.server.connect()
        await second.open_session("wren", user_id="ana", name="Ana")
        await w.clock.leap(A_DAY)
        await w.wait_until_idle()
        await say(w, first, "The fig tree grows")
        await say(w, second, "It bears figs")
        owner = owner_of(w.server.app.core)
        sessions = await owner.fetch(
            "SELECT count(*) AS turns FROM turns GROUP BY session_id ORDER BY min(id)"
        )
        assert [session["turns"] for session in sessions] == [2, 4]
