"""Two windows of one session: what is said in one is known in the other."""

from foremind.testing.model_server import Script, scripted_model
from tests.conftest import StartServer, eventually


def given(script: Script) -> list[str]:
    """What was said before, as the last request for which a player waits has it."""
    return [each["content"] for each in script.spoken[-1]["messages"][1:]]


async def test_windows_of_one_session_share_what_was_said(start: StartServer) -> None:
    """Both ways, replies too, in the order in which it was said; each stands once."""
    async with scripted_model(Script(reply=lambda _: ["Aye."])) as model:
        server = await start(llm_url=model.url, layers_off=["memories"])
        one, other = await server.session(), await server.session()
        for client, text in ((one, "The rope is red"), (other, "The lamp is out"), (one, "And?")):
            await client.send(text)
            await client.expect("response.done")
        *history, last = given(model.script)
        assert history == ["The rope is red", "Aye.", "The lamp is out", "Aye."]
        assert last.endswith("And?")


async def test_windows_in_two_processes_share_what_was_said(start: StartServer) -> None:
    """From when it is judged and announced on."""
    async with scripted_model(Script(reply=lambda _: ["I promise, aye."])) as model:
        here = await start(llm_url=model.url, layers_off=["memories"])
        there = await start(llm_url=model.url, layers_off=["memories"])
        mine, other = await here.session(), await there.session()
        await mine.send("Hello")
        await mine.expect("response.done")
        await other.send("I promise that the rope is red")
        await other.expect_all("response.done", "memory.stored")
        (session,) = here.app.registry._all()
        await eventually(lambda: not session._conversation._past.known)
        await mine.send("What do you know?")
        await mine.expect("response.done")
        assert "I promise that the rope is red" in given(model.script)
