"""The proxy that makes trouble makes none for the tests after it."""

import asyncio

from tests.acceptance.test_path import hang_up
from tests.conftest import eventually
from tests.faults.proxy import fault_proxy

_MORE_THAN_SOCKETS_HOLD = 16 * 2**20


async def test_a_proxy_that_ends_leaves_no_socket_open() -> None:
    """Also where something waits to be written to who does not read."""
    over = asyncio.Event()

    async def never_reads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        await hang_up(writer)

    server = await asyncio.start_server(never_reads, "127.0.0.1", 0)
    async with fault_proxy(server.sockets[0].getsockname()[1]) as proxy:
        _, client = await asyncio.open_connection("127.0.0.1", proxy.port)
        client.write(bytes(_MORE_THAN_SOCKETS_HOLD))
        await eventually(lambda: len(proxy._writers) == 2)
        sockets = [each.get_extra_info("socket") for each in proxy._writers]
        waiting = [each.transport for each in proxy._writers]
        await eventually(lambda: any(each.get_write_buffer_size() for each in waiting))
    assert [socket.fileno() for socket in sockets] == [-1, -1]
    over.set()
    await hang_up(client)
    server.close()
    await server.wait_closed()
