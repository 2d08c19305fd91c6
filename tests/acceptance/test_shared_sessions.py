"""Two connections share a session: each knows the messages of the other."""

from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import StartServer, eventually


def history_of(script: Script) -> list[str]:
    """Return the history in the last request for a reply."""
    return [message["content"] for message in script.player_requests[-1]["messages"][1:]]


async def test_connections_of_one_session_share_the_history(start: StartServer) -> None:
    """Messages and replies of both, in order, and each once."""
    async with scripted_model(Script(reply=lambda _: ["Aye."])) as model:
        server = await start(llm_url=model.url, layers_off=["memories"])
        first, second = await server.session(), await server.session()
        for client, text in (
            (first, "The rope is red"),
            (second, "The lamp is out"),
            (first, "And?"),
        ):
            await client.send(text)
            await client.expect("response.done")
        *history, last = history_of(model.script)
        assert history == ["The rope is red", "Aye.", "The lamp is out", "Aye."]
        assert last.endswith("And?")


async def test_connections_to_two_processes_share_the_history(start: StartServer) -> None:
    """Once a turn is ingested and announced."""
    async with scripted_model(Script(reply=lambda _: ["I promise, aye."])) as model:
        first_server = await start(llm_url=model.url, layers_off=["memories"])
        second_server = await start(llm_url=model.url, layers_off=["memories"])
        first, second = await first_server.session(), await second_server.session()
        await first.send("Hello")
        await first.expect("response.done")
        await second.send("I promise that the rope is red")
        await second.expect_all("response.done", "memory.stored")
        (session,) = first_server.app.registry._all()
        await eventually(lambda: not session._conversation.history.known)
        await first.send("What do you know?")
        await first.expect("response.done")
        assert "I promise that the rope is red" in history_of(model.script)
