"""Accepted messages survive restarts and kills at any moment."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx2
import msgspec
import psutil
import pytest

from foremind.domain.settings.settings import Settings
from foremind_client import connect
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_eval.processes.server_process import free_port
from tests.conftest import PATIENCE, PATIENT, eventually, eventually_async
from tests.faults.traffic import traffic_on

KILLS = 10  # with an effort of 1
UNUSUAL_NAME = 'a folder\'s $HOME, "größer" & `日本`'


def postgres_processes(folder: Path) -> list[str]:
    """Return the command lines of the database processes of a data folder."""
    lines = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if f"{folder}/postgres" in line:
            lines.append(line)
    return lines


class Process:
    """`foremind serve` as a process of its own."""

    def __init__(self, settings: Settings, port: int, **environment: str) -> None:
        self.url = f"ws://127.0.0.1:{port}/v1/ws"
        self.port = port
        self._environment = {
            **os.environ,
            **PATIENT,
            "FOREMIND_DATA_DIR": str(settings.data_dir),
            "FOREMIND_PORT": str(port),
            "FOREMIND_LOG_LEVEL": "error",
            **environment,
        }
        if settings.database_url is not None:
            self._environment["FOREMIND_DATABASE_URL"] = settings.database_url.reveal()

    async def start(self) -> None:
        """Start, and wait until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "foremind",
            "serve",
            env=self._environment,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        #: What it has said so far.
        self.said = ""
        while "is ready" not in self.said:
            line = await self._process.stderr.readline()
            assert line, self.said
            self.said += line.decode()

    async def stop(self, how: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        _, _ = await self._process.communicate()
        return self._process.returncode or 0


@asynccontextmanager
async def process(settings: Settings, **environment: str) -> AsyncIterator[Process]:
    """A server process that does not outlive its test."""
    server = Process(settings, free_port(), **environment)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(signal.SIGKILL)


async def test_a_killed_guard_is_restarted(settings: Settings, tmp_path: Path) -> None:
    """So that no database server outlives the server."""
    folder = tmp_path / UNUSUAL_NAME
    embedded_settings = msgspec.structs.replace(
        settings, **{"database_url": None, "data_dir": folder}
    )
    async with process(embedded_settings) as server:
        (first,) = guards_of(folder)
        first.kill()
        await eventually(
            lambda: [guard for guard in guards_of(folder) if guard.pid != first.pid] != []
        )
        await server.stop(signal.SIGKILL)
        await eventually(lambda: not postgres_processes(folder))


async def test_a_server_stops_though_its_database_hangs(settings: Settings, tmp_path: Path) -> None:
    """No wait for it is without a bound."""
    folder = tmp_path / "data"
    embedded = {"database_url": None, "data_dir": folder, "drain_s": 0.0}
    async with process(msgspec.structs.replace(settings, **embedded)) as server:
        pid = (folder / "postgres/postmaster.pid").read_text().split()[0]
        hung = psutil.Process(int(pid))
        for database in (*hung.children(), hung):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that had ended by then
                database.suspend()
        await server.stop(signal.SIGTERM)
        await eventually(lambda: is_dead(hung))


def is_dead(process: psutil.Process) -> bool:
    """Return whether a process has ended, whether or not somebody has waited for it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def guards_of(folder: Path) -> list[psutil.Process]:
    """Return the running guards of a data folder."""
    guards = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if "postgres_guard.py" in line and f"{folder}/postgres" in line:
            guards.append(process)
    return guards


async def test_the_embedded_database_survives_restarts(settings: Settings, tmp_path: Path) -> None:
    """After Ctrl-C, SIGTERM and SIGKILL; its processes always end with the server."""
    folder = tmp_path / UNUSUAL_NAME
    embedded_settings = msgspec.structs.replace(
        settings, **{"database_url": None, "data_dir": folder}
    )
    async with process(embedded_settings) as server:
        assert f"Creating an embedded PostgreSQL in {folder} ..." in server.said
        async with connect(server.url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            await client.send("I promise to call my boat Zephyrine")
            await client.expect("response.done")
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "foremind", "db", "status",
            env=os.environ | {"FOREMIND_DATA_DIR": str(folder)}, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await command.communicate()
        assert (command.returncode, said) == (0, b"")  # it starts nothing: the server has
        assert await server.stop(signal.SIGINT) == 0
        await server.start()
        assert f"Starting the embedded PostgreSQL in {folder} ..." in server.said
        async with connect(server.url) as client:
            opened = await client.open_session("wren", user_id="ana", name="Ana")
            assert opened["turns"][0]["text"] == "I promise to call my boat Zephyrine"
            async with asyncio.timeout(PATIENCE):
                # Ctrl-C may come before the turn was ingested: then it is ingested now.
                while True:
                    await client.draft(f"What is my boat called? {uuid.uuid4()}")
                    if (await client.expect("context.ready"))["memories"]:
                        break
            await client.send("What is my boat called?")
            assert "Zephyrine" in (await client.expect("response.done"))["text"]
        await server.stop(signal.SIGKILL)
        await eventually(lambda: not postgres_processes(folder))
        await server.start()
        assert postgres_processes(folder)
        assert await server.stop(signal.SIGTERM) == 0
        await eventually(lambda: not postgres_processes(folder))


@pytest.mark.parametrize("chat_model", ["offline", "model"])
async def test_the_first_message_imports_no_modules(database_url: str, chat_model: str) -> None:
    """An import on the path of a message could cost the first player most of a second.

    Nor does a start import what only documents need. If a companion is the first to get a model
    server of its own, what that needs is imported beside the event loop.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.acceptance.first_enter", chat_model),
        env=os.environ | {"FOREMIND_DATABASE_URL": database_url, "FOREMIND_LOG_LEVEL": "error"},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    expected = {"parsers: []", "loaded: []"}
    if chat_model == "offline":
        expected.add("on the loop: []")
    assert expected <= set(output.decode().splitlines()), output.decode()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_memories_are_recalled_after_a_restart(
    settings: Settings, how: signal.Signals
) -> None:
    """Asked twice: the first search may use the database, the second one the index."""
    question = "What is my boat called?"
    texts = ["I promise to call my boat Zephyrine", "hm", "well, well", "I see", question]
    async with process(settings) as server:
        async with connect(server.url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            for text in texts:
                await client.send(text)
                events = await client.expect_all("response.done", "memory.stored")
            assert "Zephyrine" in events["response.done"]["text"]
        await server.stop(how)
        await server.start()
        async with connect(server.url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            for _ in range(2):
                await client.send(question)
                assert "Zephyrine" in (await client.expect("response.done"))["text"]


@pytest.mark.timeout(3600)
async def test_kills_under_traffic_lose_and_duplicate_nothing(
    settings: Settings, database_url: str, effort: int
) -> None:
    """After `kill -9` at random moments, the clients' log equals the database."""
    randomness = random.Random(4)
    kills = KILLS * effort
    async with process(settings) as server:
        async with traffic_on(server.url) as traffic:
            for _ in range(kills):
                await asyncio.sleep(randomness.uniform(0.05, 0.6))
                await server.stop(signal.SIGKILL)
                await server.start()
            await eventually(lambda: len(traffic.accepted) > kills)
        await traffic.check(database_url)
    assert len(traffic.accepted) > kills


async def test_what_a_kill_left_unanswered_is_answered_after_a_resume(settings: Settings) -> None:
    """Once, by whichever process; without a resume it is left to be asked for."""
    script = Script(
        reply=lambda _: ["Once ", "upon ", "a time"], hold_before=asyncio.Event(), hold_after=1
    )
    async with scripted_model(script) as model:
        model_url = {"FOREMIND_LLM_URL": model.url, "FOREMIND_LLM_MODEL": "test"}
        async with process(settings, **model_url) as server:
            async with connect(server.url) as client:
                opened = await client.open_session("wren", user_id="ana", name="Ana")
                await client.send("Tell me a story", "m1")
                delta = await client.expect("response.output_text.delta")
                await server.stop(signal.SIGKILL)
            assert script.hold_before is not None
            script.hold_before.set()
            await server.start()
            async with connect(server.url) as client:
                resume = (opened["session_id"], delta["seq"])
                again = await client.open_session("wren", user_id="ana", name="Ana", resume=resume)
                assert (again["resumed"], again["session_id"]) == (False, opened["session_id"])
                assert [turn["text"] for turn in again["turns"]] == ["Tell me a story"]
                accepted = await client.expect("message.accepted")
                assert (accepted["id"], accepted["duplicate"]) == ("m1", True)
                done = await client.expect("response.done")
                assert (done["message_id"], done["status"]) == ("m1", "completed")
                assert done["text"] == "Once upon a time"
                await client.send("Thanks", "m2")  # and nothing else is answered
                assert (await client.expect("response.created"))["message_id"] == "m2"
                await client.expect("response.done")


async def test_windows_are_resumed_side_by_side_after_a_kill(settings: Settings) -> None:
    """Each under the id that it has; both go on, and hear each other."""
    async with process(settings) as server:
        opened = []
        for _ in range(3):
            async with connect(server.url) as client:
                opened.append(await client.open_session("wren", user_id="ana", name="Ana"))
        assert len({window["session_id"] for window in opened}) == 3
        await server.stop(signal.SIGKILL)
        await server.start()
        async with contextlib.AsyncExitStack() as stack:
            windows = []
            for window in opened:
                client = await stack.enter_async_context(connect(server.url))
                resume = (window["session_id"], window["seq"])
                again = await client.open_session("wren", user_id="ana", name="Ana", resume=resume)
                assert again["session_id"] == window["session_id"]
                windows.append(client)
            for number, speaker in enumerate(windows):
                await speaker.send(f"The rope is {number} feet long")
                await speaker.expect("response.done")
                for listener in windows:
                    if listener is not speaker:
                        turn = (await listener.expect("turn.stored"))["turn"]
                        assert turn["text"] == f"The rope is {number} feet long"
                        assert (await listener.expect("turn.stored"))["turn"]["reply_to"]


async def test_a_killed_erasure_of_a_user_is_finished_after_a_restart(
    settings: Settings, database_url: str
) -> None:
    """Though nobody asks again; its receipt counts what was erased before the kill, too."""
    owner = await asyncpg.connect(database_url)
    async with process(settings) as server, httpx2.AsyncClient(timeout=PATIENCE) as http:
        await owner.execute(
            "INSERT INTO companions (slug, name, greeting, persona) VALUES ('mara', 'Mara', '', '')"
        )
        for companion in ("wren", "mara"):
            async with connect(server.url) as client:
                await client.open_session(companion, user_id="ana", name="Ana")
                await client.send("I promise to call my boat Zephyrine")
                await client.expect_all("response.done", "memory.stored")
        url = f"{server.url.replace('ws', 'http', 1).removesuffix('/v1/ws')}/v1/users/ana?user=ana"
        async with owner.transaction():
            await owner.execute("SELECT FROM relationships ORDER BY id DESC LIMIT 1 FOR UPDATE")
            request = asyncio.create_task(http.delete(url))
            one_left = "SELECT count(*) = 1 FROM relationships"
            await eventually_async(lambda: owner.fetchval(one_left))
            await server.stop(signal.SIGKILL)
            with pytest.raises(httpx2.TransportError):
                await request
        await server.start()
        finished = "SELECT receipt FROM erased_users WHERE user_id IS NULL"
        await eventually_async(lambda: owner.fetchval(finished))
        receipt = json.loads(await owner.fetchval(finished))
        assert (receipt["relationships"], receipt["memories"]) == (2, 2)
        assert await owner.fetchval("SELECT count(*) FROM users") == 0
        assert (await http.delete(url)).status_code == 404
    await owner.close()
