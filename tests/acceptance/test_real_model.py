"""The layers with a real language model: small, slow, inaccurate, and with one slot."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foremind.domain.settings.settings import Settings
from foremind_client import connect
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.processes.real_model import CONTEXT_TOKENS, MODEL, real_model
from foremind_eval.processes.server_process import free_port, wait_for
from tests.acceptance.world import World
from tests.conftest import PATIENCE, StartServer

SAID = "I live in Porto with my sister Ines, and we sail to Madeira in June"


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """A model server for all tests of this file, since loading takes seconds."""
    with real_model(threads=1) as url:
        yield url


@pytest.mark.timeout(1200)
async def test_a_small_real_model_replies_and_writes_notes(
    start: StartServer, model_url: str
) -> None:
    """Whatever it writes, messages are answered, and no step fails for good."""
    clock = ManualClock()
    server = await start(
        clock,
        llm_url=model_url,
        llm_slots=1,
        llm_max_tokens=24,
        llm_reply_timeout_s=PATIENCE,  # then its text so far is used, or rules replace it
        context_tokens=CONTEXT_TOKENS,
        # Each takes up to a minute; `make background` runs them all.
        layers_off=["profile", "summary", "topics", "hot", "episodes", "opening"],
    )
    w = World(server, clock, None)
    client = await server.connect()
    opened = await client.open_session("wren", user_id="ana", name="Ana")
    w.relationship = int(opened["relationship_id"])
    await client.send(SAID)
    assert (await client.expect("response.done"))["status"] == "completed"
    await client.expect("memory.stored")
    assert SAID in await w.memories()
    await _wait_for_notes(w)


async def _wait_for_notes(w: World) -> None:
    """Wait until the notes have processed all turns, and all steps are idle."""
    async with asyncio.timeout(6 * PATIENCE):
        while True:
            steps = (await w.request("GET", "/status"))["steps"]
            behind = [step["behind"] for step in steps if step["step"] == "notes"]
            if behind == [0] and all(step["state"] == "idle" for step in steps):
                return
            assert not [step for step in steps if step["state"] == "held"], steps
            await asyncio.sleep(0.2)
            await w.clock.advance(0.2)  # in step with real time: the model is a process of its own


@pytest.mark.timeout(1200)
async def test_the_demo_is_alive_with_one_command(tmp_path: Path, settings: Settings) -> None:
    """Its server replies with the model that its notice names, and ends with it."""
    port = free_port()
    variables = {
        **os.environ,
        "FOREMIND_DATA_DIR": str(tmp_path),
        "FOREMIND_MODELS_PATH": str(settings.models_dir.absolute()),
        "FOREMIND_PORT": str(port),
    }
    command = [sys.executable, "-m", "foremind_eval.demo"]
    demo = subprocess.Popen(command, env=variables)  # noqa: ASYNC220
    try:
        await asyncio.to_thread(wait_for, demo, port)
        async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
            opened = await client.open_session("wren", user_id="ana", name="Ana")
            assert opened["model"] == MODEL
            await client.send("Good morning")
            assert (await client.expect("response.done"))["text"]
    finally:
        demo.terminate()
        await asyncio.to_thread(demo.wait)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
