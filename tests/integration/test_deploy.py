"""What operators are given works with this version: dashboard, alerts, unit, container, backups."""

import asyncio
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import httpx2
import msgspec
import pytest

from foremind.app.core import core
from foremind.auth.principal import PLAYER_SCOPES, SCOPES
from foremind.domain.errors import DatabaseUnsuitable
from foremind.domain.settings.settings import Settings
from foremind.runtime.metrics import Metrics
from foremind.storage.backup import back_up, restore
from foremind.storage.embedded_postgres import embedded_postgres
from foremind_client import connect
from foremind_eval.processes.server_process import running_server
from tests.conftest import PATIENCE, PATIENT, ROOT, StartServer, eventually_async, owner_of

DEPLOY = ROOT / "deploy"
_METRIC = re.compile(r"foremind_\w+")


def exported() -> set[str]:
    """The names of what this version counts, as Prometheus stores them."""
    names = set()
    for metric in Metrics().registry.collect():
        kinds = {
            "counter": ("_total",),
            "histogram": ("_bucket", "_sum", "_count"),
            "info": ("_info",),
        }
        names |= {metric.name + suffix for suffix in kinds.get(metric.type, ("",))}
    return {name for name in names if name.startswith("foremind_")}  # others are the process's


def labels_of(name: str) -> set[str]:
    """The labels that a metric has."""
    for var in vars(Metrics()).values():
        plain = getattr(var, "_name", "")
        if name in (plain, f"{plain}_total", f"{plain}_bucket"):
            return set(var._labelnames)
    return set()


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yaml"])
def test_dashboard_and_alerts_ask_for_metrics_that_there_are(name: str) -> None:
    """With labels that these have."""
    text = (DEPLOY / name).read_text()
    used = {
        metric for metric in _METRIC.findall(text) if not metric.startswith("foremind_sessions,")
    }
    assert used <= exported(), used - exported()
    for metric, grouped in re.findall(r"sum by \(([\w, ]+)\) \(rate\((foremind_\w+)", text):
        wanted = set(metric.split(", ")) - {"le", "instance"}
        assert wanted <= labels_of(grouped), (grouped, wanted)


def test_prometheus_collects_with_a_token_for_metrics() -> None:
    """Under the job that the rules ask for; the token is minted with a scope that there is."""
    text = (DEPLOY / "prometheus.yaml").read_text()
    set_to = dict(re.findall(r"(\w+): (\S+)$", text, re.MULTILINE))
    assert (set_to["metrics_path"], set_to["type"]) == ("/metrics", "Bearer")
    assert f'job="{set_to["job_name"]}"' in (DEPLOY / "alerts.yaml").read_text()
    assert f"> {set_to['credentials_file']}\n" in text
    (scope,) = re.findall(r"--scope (\S+)", text)
    assert scope in SCOPES - PLAYER_SCOPES


def test_the_dashboard_shows_everything_that_is_counted() -> None:
    """A metric without a panel is one that nobody looks at."""
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    shown = set(_METRIC.findall(json.dumps(dashboard["panels"])))
    hidden = {metric for metric in exported() - shown if not metric.endswith(("_sum", "_count"))}
    assert hidden <= {"foremind_prepared_contexts", "foremind_layers_left_out_total"}, hidden


def test_the_unit_is_one(tmp_path: Path) -> None:
    """systemd itself reads it, where it is at hand; else its sections and settings are checked."""
    text = (DEPLOY / "foremind.service").read_text()
    backup = (DEPLOY / "foremind-backup.service").read_text()
    for setting in ("ExecStart=", "EnvironmentFile=", "StateDirectory="):
        assert f"\n{setting}" in text and f"\n{setting}" in backup
    assert "\nUser=foremind\n" in backup  # that of foremind.service
    assert [line for line in text.splitlines() if line.startswith("[")] == [
        "[Unit]", "[Service]", "[Install]",
    ]  # fmt: skip
    assert "ExecStart=/opt/foremind/bin/foremind serve" in text
    if shutil.which("systemd-analyze") is None:
        return
    unit = tmp_path / "foremind.service"
    unit.write_text(text.replace("/opt/foremind/bin/foremind", "/bin/true"))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "foremind.service" not in said.stderr, said.stderr


def test_the_container_does_not_run_as_root() -> None:
    """And every setting in its file is one; what it builds is tested in test_container.py."""
    text = (DEPLOY / "Dockerfile").read_text()
    settings = {name.upper() for name in Settings.__struct_fields__}
    assert set(re.findall(r"FOREMIND_(\w+)=", text)) <= settings
    assert "\nUSER foremind\n" in text


def test_images_of_others_are_named_by_their_digest() -> None:
    """A tag can be moved to another image."""
    named = []
    for path in (DEPLOY / "Dockerfile", DEPLOY / "compose.yaml", *DEPLOY.glob("kubernetes/*.yaml")):
        named += re.findall(r"^(?:FROM| +image:) (\S+)", path.read_text(), re.M)
    others = [image for image in named if not image.startswith("foremind:")]
    assert len(others) >= 8
    assert [image for image in others if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []


async def test_the_nightly_backup_is_made_and_its_age_told(
    start: StartServer, settings: Settings, tmp_path: Path
) -> None:
    """By the script of the compose file; a failure is said, and leaves the former one."""
    server = await start()
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "foremind"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m foremind "$@"\n')
    command.chmod(0o755)
    script = tmp_path / "nightly-backup.sh"
    shown = (DEPLOY / "compose" / "nightly-backup.sh").read_text()
    script.write_text(shown.replace("/data", str(tmp_path / "kept")))
    (tmp_path / "kept").mkdir()
    assert settings.database_url is not None

    async def run(url: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "sh", str(script), "now", stderr=asyncio.subprocess.PIPE,
            env=os.environ | {
                "PATH": f"{command.parent}:{os.environ['PATH']}", "FOREMIND_DATABASE_URL": url,
            },
        )  # fmt: skip
        return (await process.communicate())[1].decode()

    async def age() -> float:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            text = (await http.get(f"http://127.0.0.1:{server.port}/metrics")).text
        (found,) = re.findall(r"^foremind_backup_age_seconds (\S+)$", text, re.MULTILINE)
        return float(found)

    owner = owner_of(server.app.core)
    await owner.execute("UPDATE schema_migrations SET applied_at = now() - interval '2 days'")
    await eventually_async(lambda: _is(age, lambda seconds: seconds > 170_000))
    assert "failed" not in await run(settings.database_url.reveal())
    (kept,) = (tmp_path / "kept").iterdir()
    size = kept.stat().st_size
    await eventually_async(lambda: _is(age, lambda seconds: seconds < 10_000))
    assert "The backup failed" in await run("postgresql://nobody@127.0.0.1:1/none")
    assert [file.stat().st_size for file in (tmp_path / "kept").iterdir()] == [size]


async def _is(read: Callable[[], Awaitable[float]], holds: Callable[[float], bool]) -> bool:
    return holds(await read())


async def test_a_backup_holds_everything(settings: Settings, tmp_path: Path) -> None:
    """Made while the server runs, restored elsewhere, it goes on there as if nothing happened."""
    source = msgspec.structs.replace(settings, database_url=None, data_dir=tmp_path / "a")
    file = tmp_path / "foremind.backup"
    with running_server(source) as (url, _):
        async with connect(url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            await client.send("I promise to call my boat Zephyrine")
            await client.expect_all("response.done", "memory.stored")
        known = await _play(url)
        async with embedded_postgres(source.data_dir) as database:
            await eventually_async(lambda: _rests(database))
            await back_up(database, file)
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            before = await _everything(database)
    target = msgspec.structs.replace(settings, database_url=None, data_dir=tmp_path / "b")
    async with embedded_postgres(target.data_dir) as database:
        await restore(database, file)
        assert await _everything(database) == before
        with pytest.raises(DatabaseUnsuitable, match="empty"):
            await restore(database, file)
    async with core(target) as parts:
        assert await parts.database.value("ping") == 1
    with running_server(target, PATIENT) as (url, _):
        async with connect(url) as client:
            opened = await client.open_session("wren", user_id="ana", name="Ana")
            assert opened["turns"][0]["text"] == "I promise to call my boat Zephyrine"
            await client.draft("What is my boat called?")
            recalled = await client.expect("context.ready")
        assert await _known_in_world(url) == known
    assert [memory["content"] for memory in recalled["memories"]] == [opened["turns"][0]["text"]]


async def _play(url: str) -> str:
    """Let something happen in a world that is saved; return what a mind knows there."""
    said = {"id": "e1", "type": "said", "text": "The well is dry", "actor": "ana", "scene": "inn"}
    async with _http(url) as http:
        for method, path, body in (
            ("PUT", "", {"clock": {"time": 0, "factor": 0}}),
            ("PUT", "/scenes/inn", {"players": ["ana"], "minds": ["wren"]}),
            ("POST", "/events", {"events": [said]}),
            ("POST", "/saves", {"name": "dusk"}),
            ("POST", "/events", {"events": [said | {"id": "e2", "text": "It rains"}]}),
        ):
            response = await http.request(method, f"/v1/worlds/vale{path}", json=body)
            assert response.status_code == 200, response.text
    return await _known_in_world(url)


async def _known_in_world(url: str) -> str:
    async with _http(url) as http:
        response = await http.get("/v1/worlds/vale/minds/wren/context?player=ana")
        assert "It rains" in response.text
        return response.text


def _http(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=url.replace("ws:", "http:").removesuffix("/v1/ws"), timeout=PATIENCE
    )


async def test_a_backup_is_restored_on_the_same_server(database_url: str, tmp_path: Path) -> None:
    """Of whatever version: its programs are those that Foremind brings."""
    file = tmp_path / "foremind.backup"
    await back_up(database_url, file)
    empty = f"restored_{os.getpid()}"
    admin = await asyncpg.connect(database_url)
    try:
        await admin.execute(f"CREATE DATABASE {empty}")
        url = re.sub(r"/test_\w+", f"/{empty}", database_url)
        cut_off = tmp_path / "cut_off.backup"
        cut_off.write_bytes(file.read_bytes()[:-200])
        with pytest.raises(DatabaseUnsuitable, match="pg_restore"):
            await restore(url, cut_off)  # which leaves the database empty
        await restore(url, file)
        with pytest.raises(DatabaseUnsuitable, match="empty"):
            await restore(url, file)
        await admin.execute(f"DROP DATABASE {empty} WITH (FORCE)")
    finally:
        await admin.close()


async def test_a_shell_opens_on_the_configured_database(database_url: str) -> None:
    """With what psql prints, and its exit code; no password is among its arguments."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foremind", "db", "shell",
        env={**os.environ, "FOREMIND_DATABASE_URL": database_url},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await process.communicate(b"SELECT 'rows: ' || count(*) FROM turns;\n")
    assert b"rows: 0" in printed
    assert process.returncode == 0


async def test_a_file_that_commands_cannot_use_is_named(tmp_path: Path, database_url: str) -> None:
    """In one line, and the command fails; a traceback would tell an operator nothing."""

    async def command(*words: str) -> tuple[int | None, bytes]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "foremind", *words,
            env={**os.environ, "FOREMIND_DATABASE_URL": database_url},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
        return process.returncode, said

    missing = str(tmp_path / "missing" / "file")
    await command("companions", "put", str(ROOT / "server/foremind/examples/wren.toml"))
    for words in (
        ["db", "backup", missing],
        ["db", "restore", missing],
        ["companions", "put", missing],
        ["companions", "get", "wren", "--out", missing],
        ["import", missing, "--companion", "wren"],
        ["keys", "new", "--kid", "k", "--private", missing, "--public", missing],
        ["files", "read", missing],
    ):
        code, said = await command(*words)
        assert code, words
        # Lines in a frame break within a path.
        assert b"missing" in re.sub(rb"[^!-~]+", b"", said), said
        assert b"Traceback" not in said, said


def test_the_passwords_of_compose_are_the_operator_s_alone(tmp_path: Path) -> None:
    """The shell makes the file, whatever the script's umask, and often for everybody to read."""
    file, script = tmp_path / ".env", DEPLOY / "compose" / "new-env.sh"
    subprocess.run(["sh", "-ec", f"umask 022; sh {script} > {file}"], check=True)
    assert "POSTGRES_PASSWORD=" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_backup_that_fails_leaves_no_file(tmp_path: Path, database_url: str) -> None:
    """Half a backup is worse than none: here, what row-level security shows, or one node has."""
    folder = tmp_path / "backups"
    folder.mkdir()
    url = database_url.replace("//postgres:@", "//foremind_server:@")
    with pytest.raises(DatabaseUnsuitable, match=r"pg_dump|pg_basebackup"):
        await back_up(url, folder / "foremind.backup")
    assert list(folder.iterdir()) == []


async def test_what_is_no_backup_is_not_restored(tmp_path: Path) -> None:
    """And leaves the database as it was."""
    file = tmp_path / "foremind.backup"
    file.write_text("hello")
    async with embedded_postgres(tmp_path) as url:
        with pytest.raises(DatabaseUnsuitable, match="pg_restore"):
            await restore(url, file)
        raw = await asyncpg.connect(url)
        assert await raw.fetchval("SELECT to_regclass('turns')") is None
        await raw.close()


async def _rests(url: str) -> bool:
    """Tell whether nothing is being done in the background."""
    raw = await asyncpg.connect(url)
    try:
        return not await raw.fetchval(
            "SELECT (SELECT count(*) FROM relationships WHERE due_at <= now()) + "
            "(SELECT count(*) FROM background_steps WHERE due_at <= now()) + "
            "(SELECT count(*) FROM background_steps WHERE lane = 'ingest' AND attempts = 0) + "
            "(SELECT count(*) FROM background_claims)"
        )
    finally:
        await raw.close()


async def _everything(url: str) -> dict[str, list[str]]:
    raw = await asyncpg.connect(url)
    try:
        tables = await raw.fetch(
            "SELECT relname FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace "
            "WHERE relkind = 'r' AND nspname = 'public' "
            "AND relname <> 'last_backup' ORDER BY 1"  # written once a backup is complete
        )
        return {
            row["relname"]: sorted(
                stored["whole"]
                for stored in await raw.fetch(f"SELECT whole::text FROM {row['relname']} AS whole")
            )
            for row in tables
        }
    finally:
        await raw.close()


def test_joining_a_running_database_warns_of_nothing() -> None:
    """Also where no user is logged in, as in a container."""
    result = subprocess.run(
        [sys.executable, "-c", "from foremind.storage.embedded_postgres import tools; tools()"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
