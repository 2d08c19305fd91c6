"""The fault proxy cleans up after itself."""

import asyncio

from tests.acceptance.test_message_path import hang_up
from tests.conftest import eventually
from tests.faults.proxy import fault_proxy

_MORE_THAN_SOCKET_BUFFERS = 16 * 2**20


async def test_a_proxy_that_ends_leaves_no_socket_open() -> None:
    """Even with data pending for a peer that does not read."""
    finished = asyncio.Event()

    async def never_reads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await finished.wait()
        await hang_up(writer)

    server = await asyncio.start_server(never_reads, "127.0.0.1", 0)
    async with fault_proxy(server.sockets[0].getsockname()[1]) as proxy:
        _, client = await asyncio.open_connection("127.0.0.1", proxy.port)
        client.write(bytes(_MORE_THAN_SOCKET_BUFFERS))
        await eventually(lambda: len(proxy._writers) == 2)
        sockets = [writer.get_extra_info("socket") for writer in proxy._writers]
        transports = [writer.transport for writer in proxy._writers]
        await eventually(lambda: any(transport.get_write_buffer_size() for transport in transports))
    assert [socket.fileno() for socket in sockets] == [-1, -1]
    finished.set()
    await hang_up(client)
    server.close()
    await server.wait_closed()
