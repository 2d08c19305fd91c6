"""The services of deploy/compose.yaml as plain processes, on ports of this machine.

Commands, environment and configuration files are those of deploy/; only addresses and folders are
replaced, and recall has more time. Grafana is left out.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx2

from foremind.storage.embedded_postgres import embedded_postgres, tools
from foremind_eval.processes.server_process import free_port
from tests.conftest import PATIENCE, PATIENT, eventually_async
from tests.deployment.compose import DOMAIN, FOLDER, Service
from tests.programs import program

GATEWAYS = ("gateway-1", "gateway-2")
_FOREMIND = [sys.executable, "-m", "foremind"]
_HOST = "127.0.0.1"


@dataclass
class Topology:
    """What runs, and where.

    Attributes:
        ports: by the address that the service has in the compose file.
        output: what each service has printed.
    """

    folder: Path
    services: Mapping[str, Service]
    ports: Mapping[str, int]
    output: dict[str, bytearray] = field(default_factory=dict)
    _running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _readers: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """Return a text with the addresses and folders that things have here."""
        known = "|".join(re.escape(address) for address in self.ports)
        text = re.sub(
            rf"(?:{re.escape(_HOST)})?({known})(?!\d)", lambda found: self.address(found[1]), text
        )
        return text.replace("/data", str(self.folder / "data"))

    def address(self, written: str) -> str:
        """Return the host and port that stand for an address of the compose file."""
        return f"{_HOST}:{self.ports[written]}"

    def environment(self, service: str) -> dict[str, str]:
        """Return the environment of a service, beside that of the tests."""
        given = self.services[service].environment
        return {**os.environ, **{name: self.here(value) for name, value in given.items()}}

    async def run(self, service: str, command: list[str]) -> str:
        """Run a command in the environment of a service; return what it printed."""
        process = await asyncio.create_subprocess_exec(
            *command, env=self.environment(service), cwd=self.folder,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, f"{service}: {output}"
        return output

    async def start(
        self, service: str, command: list[str], more: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:  # fmt: skip
        """Start a service that runs until it is stopped."""
        folder = self.folder / service
        folder.mkdir(exist_ok=True)
        given = self.environment(service) if service in self.services else dict(os.environ)
        process = await asyncio.create_subprocess_exec(
            *command, env={**given, **(more or {})}, cwd=folder, user=user,
            start_new_session=True,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self._running[service] = process
        self._readers[service] = asyncio.create_task(self._read(service, process))

    async def start_gateway(self, service: str) -> None:
        """Start a gateway, and wait until it is ready."""
        more = PATIENT | {
            "FOREMIND_HOST": _HOST,
            "FOREMIND_PORT": str(self.ports[f"{service}:8770"]),
            "FOREMIND_DATA_DIR": str(self.folder / service),
            "FOREMIND_TRUSTED_PROXIES": _HOST,
        }
        await self.start(service, [*_FOREMIND, "serve"], more)
        await eventually_async(
            lambda: self.answers(f"http://{self.address(f'{service}:8770')}/readyz")
        )

    async def stop(self, service: str, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop a service as compose does, unless told to do otherwise; return its exit code."""
        process = self._running.pop(service)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        async with asyncio.timeout(PATIENCE):
            code = await process.wait()
        await self._readers.pop(service)
        return code

    async def answers(self, url: str) -> bool:
        """Tell whether a URL can be read."""
        try:
            async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                return (await http.get(url)).is_success
        except httpx2.HTTPError:
            return False

    async def stop_all(self) -> None:
        """Stop what is running, last started first."""
        for service in reversed(list(self._running)):
            await self.stop(service, signal.SIGINT if service == "postgres" else signal.SIGTERM)

    async def _read(self, service: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        kept = self.output.setdefault(service, bytearray())
        while chunk := await process.stdout.read(65_536):
            kept += chunk


@asynccontextmanager
async def topology(
    folder: Path, services: Mapping[str, Service], certificate: Path
) -> AsyncIterator[Topology]:
    """Start everything in the order of the compose file, for the length of a block."""
    addresses = [
        "postgres:5432",
        "grafana:3000",
        "prometheus:9090",
        "nats:4222",
        ":8222",
        ":8080",
        ":8443",
        ":3000",
    ]
    addresses += [f"{name}:8770" for name in GATEWAYS]
    ports = {address: free_port() for address in addresses}
    ports[DOMAIN] = ports[":8443"]
    (folder / "data").mkdir()
    running = Topology(folder, services, ports)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(running.stop_all)
        await _start_postgres(running)
        await start_nats(running)
        await running.run("maintenance", [*_FOREMIND, *services["maintenance"].command])
        await _run_shell(running, "metrics-token")
        await asyncio.gather(*(running.start_gateway(gateway) for gateway in GATEWAYS))
        await _start_proxy(running, certificate)
        yield running


async def start_prometheus(running: Topology) -> None:
    """Start Prometheus with the configuration of the compose file."""
    folder = running.folder / "prometheus"
    folder.mkdir()
    text = running.here((FOLDER / "compose" / "prometheus.yaml").read_text())
    text = text.replace("/run/token", str(running.folder / "data"))
    (folder / "prometheus.yaml").write_text(text)
    (folder / "alerts.yaml").write_bytes((FOLDER / "alerts.yaml").read_bytes())
    address = running.address("prometheus:9090")
    command = [
        program("prometheus"),
        "--config.file=prometheus.yaml",
        f"--web.listen-address={address}",
    ]
    await running.start("prometheus", command)
    await eventually_async(lambda: running.answers(f"http://{address}/-/ready"))


async def start_nats(running: Topology) -> None:
    """Start NATS, and wait until it is healthy."""
    ports = [f"--port={running.ports['nats:4222']}", f"--http_port={running.ports[':8222']}"]
    command = [program("nats-server"), "--config", str(FOLDER / "compose" / "nats.conf"), *ports]
    await running.start("nats", [*command, f"--addr={_HOST}"])
    await _healthy(running, "nats")


async def _start_postgres(running: Topology) -> None:
    """Start an ordinary PostgreSQL with a superuser, as the image does, and run the init script."""
    given = running.services["postgres"].environment
    data = running.folder / "postgres"
    async with embedded_postgres(running.folder) as url:  # creates it
        owner = await asyncpg.connect(url)
        user, password = given["POSTGRES_USER"], given["POSTGRES_PASSWORD"]
        await owner.execute(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{password}'")
        await owner.close()
        script = FOLDER / "compose" / "postgres-roles.sh"
        path = f"{tools()}{os.pathsep}{os.environ['PATH']}"
        await running.run("postgres", ["env", f"PATH={path}", f"PGHOST={data}", "sh", str(script)])
    (data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    port = running.ports["postgres:5432"]
    command = [str(tools() / "postgres"), "-D", str(data), "-k", "", "-h", _HOST, "-p", str(port)]
    # PostgreSQL refuses to run as root.
    await running.start("postgres", command, user=data.owner() if os.geteuid() == 0 else None)
    name, *options = _health_check(running, "postgres")
    check = [str(tools() / name), *options, f"--port={port}"]
    await eventually_async(lambda: _succeeds(check))


def _health_check(running: Topology, service: str) -> list[str]:
    """Return the command of a service's health check."""
    kind, *words = running.services[service].options["healthcheck"]["test"]
    assert kind == "CMD"
    return [running.here(word) for word in words]


async def _succeeds(command: list[str]) -> bool:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    return await process.wait() == 0


async def _run_shell(running: Topology, service: str) -> None:
    """Run a service whose entrypoint is a shell, with `foremind` on its path."""
    given = running.services[service]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [running.here(word) for word in given.command]
    await running.run(service, ["env", f"PATH={path}", *given.entrypoint, *command])


async def _start_proxy(running: Topology, certificate: Path) -> None:
    configuration = str(FOLDER / "compose" / "haproxy.cfg")
    command = [program("haproxy"), "-db", "-f", configuration]
    await running.start("proxy", command, {"TLS_PEM": str(certificate)})
    await _healthy(running, "proxy")


async def _healthy(running: Topology, service: str) -> None:
    """Wait until the URL of a service's health check answers."""
    (url,) = [word for word in _health_check(running, service) if word.startswith("http:")]
    await eventually_async(lambda: running.answers(url))
