"""A session ends by silence, whether or not somebody stays connected, as game servers do."""

from tests.acceptance.layers import A_DAY, World, world
from tests.acceptance.test_layers import WITH_AND_WITHOUT
from tests.conftest import StartServer, owner_of


async def say(w: World, client: object, *texts: str) -> None:
    """Say things over a connection that is open already."""
    for text in texts:
        await client.send(text)  # type: ignore[attr-defined]
        await client.expect_all("response.done", "memory.stored")  # type: ignore[attr-defined]
        await w.clock.advance(20)
    await w.settled()


@WITH_AND_WITHOUT
async def test_a_session_ends_by_silence_though_its_socket_stays_open(
    start: StartServer, model: bool
) -> None:
    """It is told of, and what is said over the same socket afterwards is another session."""
    async with world(start, model=model) as w:
        client = await w.talk("We decided to sail to Madeira in June with the old boat")
        await w.next_day()
        (episode,) = await w.records("episodes")
        assert "Madeira" in str(episode)
        assert "Madeira" in await w.lines("opening")
        await say(w, client, "Good morning, how is the weather")
        shown = await w.request("GET", "/sessions")
        over = [(each["turns"], each["closed_at"] is not None) for each in shown["sessions"]]
        assert over == [(2, False), (2, True)]
        if w.model is not None:
            given = w.model.script.spoken[-1]["messages"]
            assert [each["role"] for each in given] == ["system", "user"]


async def test_days_over_one_socket_are_sessions_of_their_own(start: StartServer) -> None:
    """What comes up on three of them becomes a topic."""
    async with world(start, model=False) as w:
        client = await w.talk("I began to build the lighthouse. My lighthouse needs a lamp")
        for text in (
            "I found a lamp for my lighthouse. The lighthouse is bright now",
            "I painted the lighthouse red. Everybody admires the lighthouse",
        ):
            await w.clock.leap(A_DAY)
            await w.settled()
            await say(w, client, text)
        await w.next_day()
        topics = await w.records("topics", "lighth")
        assert len(topics) == 1
        episodes = await w.records("episodes")
        assert len(episodes) == 3


async def test_windows_of_one_user_go_on_in_the_same_session_after_a_silence(
    start: StartServer,
) -> None:
    """Whichever speaks first begins it; the other does not begin a third."""
    async with world(start, model=False) as w:
        one = await w.talk("I planted a fig tree")
        other = await w.server.connect()
        await other.open_session("wren", user_id="ana", name="Ana")
        await w.clock.leap(A_DAY)
        await w.settled()
        await say(w, one, "The fig tree grows")
        await say(w, other, "It bears figs")
        owner = owner_of(w.server.app.core)
        said = await owner.fetch(
            "SELECT count(*) AS turns FROM turns GROUP BY session_id ORDER BY min(id)"
        )
        assert [each["turns"] for each in said] == [2, 4]
