"""`foremind serve --workers N`: several gateways behind one port, restarted when they die."""

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import asyncpg
import httpx2
import psutil
import pytest
from loadtests.cluster.audit import audit
from loadtests.cluster.players import Player, playing
from loadtests.cluster.topology import WorkerCluster, own_port, workers_of

from foremind.domain.settings.settings import Settings
from foremind_client import Conversation, Identity
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_eval.processes.server_process import free_port
from tests.conftest import PATIENCE, eventually, eventually_async

KILLS = 4


@asynccontextmanager
async def cluster(
    settings: Settings, workers: int, llm_url: str = ""
) -> AsyncIterator[WorkerCluster]:
    """Run workers on this test's database."""
    assert settings.database_url is not None
    url = settings.database_url.reveal()
    running = WorkerCluster(workers, url, settings.data_dir)
    running.environment["FOREMIND_LLM_URL"] = llm_url
    async with running:
        yield running


@pytest.mark.timeout(1200)
async def test_kills_under_traffic_lose_and_double_nothing(
    settings: Settings, database_url: str
) -> None:
    """Of four gateways, one after another is killed; the players' log equals the database."""
    rng = random.Random(18)
    async with cluster(settings, 4) as running:
        async with playing(running.url, players=6) as players:
            await eventually(lambda: all(player.accepted for player in players))
            for _ in range(KILLS):
                await running.kill_gateway(rng)
                since = {player: len(player.accepted) for player in players}
                await eventually(partial(_all_go_on, players, since))
                await running.wait_until_whole()
        outcome = await audit(database_url, players, patience_s=PATIENCE)
    assert outcome.messages > KILLS * len(players)
    assert (outcome.lost, outcome.doubled) == ([], [])
    assert [error for player in players for error in player.errors] == []


def _all_go_on(players: list[Player], since: dict[Player, int]) -> bool:
    """Return whether every player had a message accepted since."""
    return all(len(player.accepted) > since[player] for player in players)


TEXT = "I promise to bring the golden lantern"


TURN: dict[str, object] = {"id": "m1", "companion": "wren", "user": "ana", "text": TEXT}
CHAT: dict[str, object] = {
    "model": "wren",
    "user": "ana",
    "messages": [{"role": "user", "content": TEXT}],
}


@pytest.mark.parametrize(
    ("path", "body", "streaming"),
    [
        ("/v1/turns", TURN, {}),
        ("/v1/chat/completions", CHAT, {}),
        ("/v1/chat/completions", CHAT, {"stream": True}),
    ],
)
async def test_a_request_whose_gateway_is_killed_is_repeated_and_stored_once(
    settings: Settings,
    database_url: str,
    path: str,
    body: dict[str, object],
    streaming: dict[str, object],
) -> None:
    """Between the stored message and its reply; another gateway answers the same request."""
    script = Script(
        reply=lambda _: ["Of ", "course."],
        background=background_answer,
        hold_before=asyncio.Event(),
        hold_after=1 if streaming else None,
    )
    async with (
        scripted_model(script) as model,
        cluster(settings, 2, model.url) as running,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{running.port}", timeout=PATIENCE) as http,
    ):
        await running.wait_until_whole()
        asking = asyncio.create_task(http.post(path, json=body | streaming))
        await eventually(lambda: bool(script.player_requests) or asking.done())
        _client_of(running, script.ports[-1]).kill()
        with pytest.raises(httpx2.TransportError):
            await asking
        assert script.hold_before is not None
        script.hold_before.set()

        async def answered() -> bool:
            try:
                return (await http.post(path, json=body)).status_code == 200
            except httpx2.TransportError:  # its connection was accepted for the killed one
                return False

        await eventually_async(answered)
        raw = await asyncpg.connect(database_url)
        try:
            rows = await raw.fetch("SELECT speaker, status, content FROM turns ORDER BY id")
        finally:
            await raw.close()
    assert [tuple(row) for row in rows] == [
        ("user", "completed", TEXT),
        ("companion", "completed", "Of course."),
    ]


def _client_of(running: WorkerCluster, port: int) -> psutil.Process:
    """Return the worker that has a connection from a port."""
    (worker,) = [
        worker
        for worker in workers_of(running.process)
        if any(
            connection.raddr and connection.laddr.port == port
            for connection in worker.net_connections("tcp")
        )
    ]
    return worker


async def test_every_worker_serves_and_is_found(settings: Settings) -> None:
    """Conversations begin at the shared port, and spread over the workers that own them."""
    async with cluster(settings, 2) as running:
        conversations = [
            Conversation(running.url, Identity("wren", user_id=f"user-{number}"))
            for number in range(8)
        ]
        for conversation in conversations:
            async with conversation as wren:
                assert (await wren.say("Hello"))["status"] == "completed"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            sessions = []
            for port in (own_port(worker, running.port) for worker in workers_of(running.process)):
                answer = await http.get(f"http://127.0.0.1:{port}/v1/admin/sessions?user=ana")
                sessions.append({session["user"] for session in answer.json()["sessions"]})
                assert (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
            assert (await http.get(f"http://127.0.0.1:{running.port}/readyz")).status_code == 200
    first, second = sessions
    assert first | second == {f"user-{number}" for number in range(8)}
    assert not first & second


async def test_a_page_of_the_shared_port_may_connect_to_a_worker(settings: Settings) -> None:
    """Its origin is not that of the worker's own port."""
    async with cluster(settings, 2) as running:
        port = own_port(workers_of(running.process)[0], running.port)
        for origin, status in ((f"http://localhost:{running.port}", 200), ("http://evil", 403)):
            async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                answer = await http.get(
                    f"http://127.0.0.1:{port}/v1/companions?user=ana",
                    headers={"Origin": origin},
                )
            assert answer.status_code == status


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_workers_end_with_their_parent(settings: Settings, how: signal.Signals) -> None:
    """However it ends; nobody is left behind on the port."""
    async with cluster(settings, 2) as running:
        workers = workers_of(running.process)
        assert len(workers) == 2
        running.process.send_signal(how)
        await eventually(lambda: not any(map(_is_alive, workers)))
        if how is not signal.SIGKILL:
            assert await running.exit_code() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_whose_workers_are_not_ready_stops(
    settings: Settings, how: signal.Signals
) -> None:
    """As one does whose workers are: with 0, and nobody is left behind."""
    assert settings.database_url is not None
    cluster = WorkerCluster(2, settings.database_url.reveal(), settings.data_dir)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "foremind", "serve", "--port", "0", "--workers", "2"),
        env=os.environ | cluster.environment,
        stderr=asyncio.subprocess.PIPE,
    )
    await eventually(lambda: bool(workers_of(process)))
    workers = workers_of(process)
    process.send_signal(how)
    _, said = await process.communicate()
    assert process.returncode == 0, said
    assert b"is ready" not in said
    assert not any(map(_is_alive, workers))


def _is_alive(worker: psutil.Process) -> bool:
    """Return whether a process runs; nobody may be there to collect an orphan that has ended."""
    with suppress(psutil.Error):
        return bool(worker.status() != psutil.STATUS_ZOMBIE)
    return False


async def test_a_worker_that_cannot_start_stops_the_server(settings: Settings) -> None:
    """With one line that says why, instead of being restarted for ever."""
    port = free_port(in_row=3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        database = settings.database_url
        assert database is not None
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "foremind", "serve", "--workers", "2", "--port", str(port)),
            env=os.environ | WorkerCluster(2, database.reveal(), settings.data_dir).environment,
            stderr=asyncio.subprocess.PIPE,
        )
        _, output = await process.communicate()
    assert process.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{port + 1}" in output.decode()
