"""Who this process says it is to NATS, and which NATS it believes: passwords, files, TLS."""

import asyncio
import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nkeys
import pytest

from foremind.app.configuration import load_settings
from foremind.domain.errors import InvalidFile
from foremind_eval.processes.nats_server import NatsServer
from tests.acceptance.test_message_path import metric_value
from tests.acceptance.test_several_processes import BOAT, readiness, remember
from tests.conftest import RunningServer, StartServer, eventually
from tests.deployment.certificate import write_certificate

SECRET = "p@ss:w/rd-8461"
ENCODED = "p%40ss%3Aw%2Frd-8461"


@contextmanager
def nats_with(folder: Path, configuration: str) -> Iterator[NatsServer]:
    """Run NATS with a configuration."""
    file = folder / "nats.conf"
    file.write_text(configuration)
    with NatsServer(file) as server:
        yield server


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate for 127.0.0.1, which is trusted."""
    file = tmp_path / "site.pem"
    write_certificate(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return file


def guarded(certificate: Path | None = None) -> str:
    """Return a configuration with one user, and with TLS if there is a certificate."""
    user = f'authorization {{ user: "foremind", password: "{SECRET}" }}\n'
    if certificate is None:
        return user
    return user + f'tls {{ cert_file: "{certificate}", key_file: "{certificate}" }}\n'


async def assert_hears(start: StartServer, url: str, **settings: object) -> None:
    """Assert that what one process announces reaches another through this URL."""
    first, second = [await start(nats_url=url, **settings) for _ in range(2)]
    await eventually(lambda: first.app.core.bus.trusted and second.app.core.bus.trusted)
    assert await readiness(first) == (200, "ok")
    before = metric_value(second, "foremind_announcements_total", event="received")
    await remember(first, await first.session(), BOAT)
    await eventually(
        lambda: metric_value(second, "foremind_announcements_total", event="received") > before
    )


async def assert_degraded(server: RunningServer, says: str) -> None:
    """Assert that a server is ready without NATS, and says why NATS is not used."""
    status, announcements = await readiness(server)
    assert status == 200
    assert announcements.startswith("degraded: ")
    assert says in announcements


async def test_announcements_travel_over_tls_with_a_password(
    start: StartServer, tmp_path: Path, certificate: Path
) -> None:
    """The password's special characters are percent-encoded in the URL."""
    with nats_with(tmp_path, guarded(certificate)) as nats:
        await assert_hears(start, f"tls://foremind:{ENCODED}@{nats.address}")


async def test_announcements_travel_with_a_token(start: StartServer, tmp_path: Path) -> None:
    """It stands where otherwise the user is."""
    with nats_with(tmp_path, f'authorization {{ token: "{SECRET}" }}') as nats:
        await assert_hears(start, f"nats://{ENCODED}@{nats.address}")


async def test_a_server_that_is_away_is_passed_over(start: StartServer, tmp_path: Path) -> None:
    """Several are named, each with its own password."""
    with nats_with(tmp_path, guarded()) as nats:
        away = "nats://other:word@127.0.0.1:1"
        await assert_hears(start, f"{away},nats://foremind:{ENCODED}@{nats.address}")


async def test_a_refused_password_is_reported_and_shown_to_nobody(
    start: StartServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in logs, nor by /readyz, nor in the settings as they are printed."""
    with nats_with(tmp_path, guarded()) as nats:
        server = await start(nats_url=f"nats://foremind:wrong-{ENCODED}@{nats.address}")
        await assert_degraded(server, "it refuses this user")
        assert (await readiness(server))[1].find("8461") == -1
    assert "refuses this user" in caplog.text
    assert "8461" not in caplog.text
    assert "8461" not in repr(server.app.core.runtime.settings)
    assert "8461" not in repr(vars(server.app.core.bus))


async def test_a_certificate_that_is_not_trusted_is_refused(
    start: StartServer, tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed by an authority that this machine does not know."""
    monkeypatch.delenv("SSL_CERT_FILE")
    with nats_with(tmp_path, guarded(certificate)) as nats:
        server = await start(nats_url=f"tls://foremind:{ENCODED}@{nats.address}")
        await assert_degraded(server, "its certificate is not trusted")


async def test_no_password_is_sent_to_a_server_without_tls(start: StartServer) -> None:
    """If the URL says tls, someone in between cannot talk it out of encrypting."""
    received = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576,"auth_required":true}\r\n')
        received.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        server = await start(nats_url=f"tls://foremind:{ENCODED}@{host}:{port}")
        await assert_degraded(server, "it offers no TLS")
    assert not received


async def test_a_user_who_may_not_subscribe_is_reported(start: StartServer, tmp_path: Path) -> None:
    """The connection stands, and nothing would ever arrive."""
    users = '{ user: "foremind", password: "x", permissions: { subscribe: "elsewhere" } }'
    with nats_with(tmp_path, f"authorization {{ users: [ {users} ] }}") as nats:
        server = await start(nats_url=f"nats://foremind:x@{nats.address}")
        await eventually(
            lambda: "refuses this user" in server.app.core.bus.health()["announcements"]
        )


async def test_a_user_is_known_by_a_credentials_file(start: StartServer, tmp_path: Path) -> None:
    """It holds a JWT, signed by the account, and the seed that signs what the server asks."""
    operator, account = Key(nkeys.PREFIX_BYTE_OPERATOR), Key(nkeys.PREFIX_BYTE_ACCOUNT)
    user = Key(nkeys.PREFIX_BYTE_USER)
    account_jwt = operator.signed(account.public, {"type": "account", "limits": UNLIMITED})
    configuration = (
        f"operator: {operator.signed(operator.public, {'type': 'operator'})}\n"
        f"resolver: MEMORY\nresolver_preload: {{ {account.public}: {account_jwt} }}\n"
    )
    file = tmp_path / "nats.creds"
    user_jwt = account.signed(user.public, {"type": "user", "subs": -1, "data": -1, "payload": -1})
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    with nats_with(tmp_path, configuration) as nats:
        await assert_hears(start, nats.url, nats_credentials=file)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "No such file"), (b"", "expected the credentials"), (b"\xff", "expected text"),
     (b"BEGIN NATS USER JWT--\nx\nBEGIN USER NKEY SEED--\nSUX\n", "expected the credentials")],
)  # fmt: skip
async def test_a_credentials_file_that_cannot_be_used_prevents_the_start(
    start: StartServer, tmp_path: Path, content: bytes | None, expected: str
) -> None:
    """The message names the setting."""
    file = tmp_path / "nats.creds"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidFile, match=f"FOREMIND_NATS_CREDENTIALS: .*{expected}"):
        await start(nats_url="nats://127.0.0.1:1", nats_credentials=file)


@pytest.mark.parametrize("url", ["http://a:8461@b", "nats://a:8461@", "nats://a/8461", "8461"])
def test_an_invalid_url_is_not_shown(url: str) -> None:
    """It may contain a password."""
    with pytest.raises(InvalidFile, match="FOREMIND_NATS_URL: expected") as raised:
        load_settings(nats_url=url)
    assert "8461" not in str(raised.value)


UNLIMITED = {
    "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True,
    "conn": -1, "leaf": -1,
}  # fmt: skip


class Key:
    """An Ed25519 key of the kind that NATS uses for operators, accounts and users."""

    def __init__(self, kind: int) -> None:
        self.seed = bytes(nkeys.encode_seed(os.urandom(32), kind)).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public = self._pair.public_key.decode()

    def signed(self, subject: str, claims: dict[str, object]) -> str:
        """Return a JWT about a subject, by this key."""
        content = {
            "jti": os.urandom(8).hex(), "iat": int(time.time()), "iss": self.public,
            "name": "test", "sub": subject, "nats": {"version": 2, **claims},
        }  # fmt: skip
        parts = [_encoded(json.dumps(part).encode()) for part in (_HEADER, content)]
        body = ".".join(parts)
        return f"{body}.{_encoded(self._pair.sign(body.encode()))}"


_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
