"""Crowds of clients for measurements."""

import json
import os
from collections import defaultdict

import psutil
from websockets.asyncio.server import ServerConnection, serve

from foremind_eval.many_clients import crowd, new_users
from foremind_eval.processes.server_process import cpu_s


async def test_a_crowd_is_spread_over_the_servers_in_turn() -> None:
    """Each user has one session, and the clients are in the order of the users."""
    users = new_users(7)
    opened: dict[int, list[str]] = defaultdict(list)

    async def open_session(socket: ServerConnection) -> None:
        frame = json.loads(await socket.recv())
        assert frame["companion"] == "seeded"
        opened[socket.local_address[1]].append(frame["user"]["id"])
        await socket.send(json.dumps({"type": "session.opened", "of": frame["user"]["id"]}))
        async for sent in socket:
            await socket.send(json.dumps({"type": "echo", "of": frame["user"]["id"], "text": sent}))

    async with (
        serve(open_session, "127.0.0.1", 0) as first,
        serve(open_session, "127.0.0.1", 0) as second,
    ):
        ports = [next(iter(server.sockets)).getsockname()[1] for server in (first, second)]
        urls = [f"ws://127.0.0.1:{port}/v1/ws" for port in ports]
        async with crowd(urls, users, "seeded") as clients:
            for client in clients:
                await client.draft("Hello")
            assert [(await client.expect("echo"))["of"] for client in clients] == users
    assert sorted(opened[ports[0]]) == sorted(users[0::2])
    assert sorted(opened[ports[1]]) == sorted(users[1::2])
    assert not set(users) & set(new_users(7))


def test_the_cpu_time_of_a_process_is_read_while_it_runs() -> None:
    """One that has ended has used none that could be read."""
    process = psutil.Process(os.getpid())
    assert cpu_s(process) > 0
    ended = psutil.Popen(["true"])
    ended.wait()
    assert cpu_s(ended) == 0
