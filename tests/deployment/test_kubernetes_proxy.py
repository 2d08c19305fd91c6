"""deploy/kubernetes/haproxy.cfg follows the gateways that the cluster's DNS names."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import httpx2

from foremind_eval.processes.server_process import free_port
from tests.conftest import PATIENCE, eventually_async
from tests.deployment.certificate import write_certificate
from tests.deployment.compose import FOLDER
from tests.programs import program

Get = Callable[[str], Awaitable[str]]
_SUFFIX = ".gateways.foremind.svc.cluster.local"
_NAME_ERROR = 3


@dataclass
class Cluster(asyncio.DatagramProtocol):
    """The cluster's DNS, and its gateways: stand-ins that answer with their name.

    Attributes:
        addresses: by the name of a gateway.
        ready: the gateways that are.
    """

    port: int
    addresses: dict[str, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where answers are sent."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a question for the address of a gateway."""
        name, question = _question(data)
        address = self.addresses.get(name.removesuffix(_SUFFIX))
        flags = 0x8400 | (0 if address else _NAME_ERROR)
        head = data[:2] + struct.pack("!5H", flags, 1, 1 if address else 0, 0, 0)
        answer = b""
        if address:  # a pointer to the question's name, type A, class IN, one second
            octets = bytes(map(int, address.split(".")))
            answer = struct.pack("!3HIH", 0xC00C, 1, 1, 1, 4) + octets
        self._transport.sendto(head + question + answer, addr)

    async def add(self, name: str, stack: AsyncExitStack) -> None:
        """Start a gateway that is ready, and name it in the DNS."""
        address = f"127.0.0.{2 + len(self.addresses)}"
        server = await asyncio.start_server(partial(self._serve, name), address, self.port)
        await stack.enter_async_context(server)
        self.ready.add(name)
        self.addresses[name] = address

    async def _serve(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        ready = name in self.ready or b" /readyz " not in request
        status = "200 OK" if ready else "503 Service Unavailable"
        text = (
            f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(name)}\r\n\r\n{name}"
        )
        writer.write(text.encode())
        writer.close()


def _question(data: bytes) -> tuple[str, bytes]:
    """Return the name of a DNS query, and its whole question."""
    labels, at = [], 12
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower(), data[12 : at + 5]


@asynccontextmanager
async def proxied(folder: Path, cluster: Cluster) -> AsyncIterator[Get]:
    """Run the proxy with the cluster's DNS; yield a function that reads a path through it."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: cluster, ("127.0.0.1", 0))
    dns = "{}:{}".format(*transport.get_extra_info("sockname")[:2])
    text = (FOLDER / "kubernetes" / "haproxy.cfg").read_text()
    text = text.replace("parse-resolv-conf", f"nameserver cluster {dns}")
    (folder / "haproxy.cfg").write_text(text.replace(":8770", f":{cluster.port}"))
    write_certificate(folder / "site.pem")
    http, https = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg"),
        env={
            "HTTP_BIND": f"127.0.0.1:{http}", "HTTPS_BIND": f"127.0.0.1:{https}",
            "TLS_PEM": str(folder / "site.pem"), "OPERATOR_NETWORKS": "192.0.2.1",
        },
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    async def get(path: str) -> str:
        async with httpx2.AsyncClient(verify=False, timeout=PATIENCE) as client:
            try:
                answer = await client.get(f"https://127.0.0.1:{https}{path}")
            except httpx2.HTTPError:  # it does not listen yet
                return ""
        return answer.text if answer.is_success else str(answer.status_code)

    try:
        yield get
    finally:
        process.terminate()
        await process.wait()
        transport.close()


async def test_gateways_are_found_and_reached_by_name(tmp_path: Path) -> None:
    """One that joins gets connections, one that drains gets none, and each can be asked for."""
    cluster = Cluster(free_port())
    async with AsyncExitStack() as stack:
        get = await stack.enter_async_context(proxied(tmp_path, cluster))
        await eventually_async(lambda: _says(get, {"503"}))
        await cluster.add("gateway-0", stack)
        await eventually_async(lambda: _says(get, {"gateway-0"}))
        await cluster.add("gateway-1", stack)
        await eventually_async(lambda: _says(get, {"gateway-0", "gateway-1"}))
        for name in ("gateway-0", "gateway-1") * 3:
            assert await get(f"/v1/ws?gateway={name}") == name
        # Nothing else can be named: neither a gateway that there is not nor another host.
        for name in ("gateway-7", "127.0.0.1", ""):
            assert await get(f"/v1/ws?gateway={name}") in ("gateway-0", "gateway-1")
        cluster.ready.remove("gateway-0")
        await eventually_async(lambda: _says(get, {"gateway-1"}))
        assert await get("/v1/ws?gateway=gateway-0") == "gateway-1"


async def _says(get: Get, names: set[str]) -> bool:
    """Tell whether connections go to exactly these gateways."""
    return {await get("/") for _ in range(8)} == names
