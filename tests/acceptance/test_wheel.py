"""The distributions, as built wheels: what each holds, and what each needs."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import venv
from collections.abc import Iterable
from email import message_from_bytes
from email.policy import default
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from readme_renderer import markdown

from foremind import __version__
from tests.conftest import ROOT, StartServer

SERVER, CLIENT, EVALUATION = ROOT, ROOT / "clients" / "python", ROOT / "evaluation"
TRANSPORT, MODELS = ROOT / "transport", ROOT / "models"
DISTRIBUTIONS = (SERVER, CLIENT, EVALUATION, TRANSPORT, MODELS)
OURS = ("foremind", "fair-transport")  # what their names begin with
TALK = """
import asyncio, importlib.util, sys
from foremind_client import Conversation, Identity

async def talk():
    async with Conversation(sys.argv[1], Identity("wren", "player-17", "Ana")) as mind:
        mind.type("I promise to name my boat")
        reply = await mind.say("I promise to name my boat Zephyrine")
        print(reply["status"])

unwanted = ("foremind", "foremind_eval", "onnxruntime", "numpy", "msgspec")
assert not [name for name in unwanted if importlib.util.find_spec(name)]
asyncio.run(talk())
"""


def build(folder: Path, out: Path) -> Path:
    """Build an sdist, and from it the wheel, without a network; return the wheel's path."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    before = set(out.glob("*.whl"))
    subprocess.run([*command, str(folder)], check=True, capture_output=True)
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def environment_with(folder: Path, names: Iterable[str], *wheels: Path) -> Path:
    """Return a virtual environment with wheels, and some distributions of the one that runs this.

    Raises:
        CalledProcessError: one of them requires another.
    """
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in names:
        for file in distribution(name).files or ():
            if file.parts[0] != "..":  # but not its commands
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    pip(folder, "install", "--quiet", "--no-deps", "--no-index", *wheels)
    pip(folder, "check")
    return folder


def pip(environment: Path, *arguments: str | Path) -> None:
    """Run pip for a virtual environment, which has none itself."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*command, "--python", environment / "bin" / "python", *arguments], check=True)


def locked(lock: str) -> list[str]:
    """Return the names of the distributions that a lock has for this platform.

    Raises:
        AssertionError: the environment that runs this has one in another version.
    """
    text = (ROOT / "requirements" / lock).read_text("utf-8")
    lines = re.findall(r"^(\w.*?) *\\$", text, re.M)
    requirements = [Requirement(line) for line in lines]
    needed = [item for item in requirements if item.marker is None or item.marker.evaluate()]
    for requirement in needed:
        assert distribution(requirement.name).version in requirement.specifier, requirement
    return [requirement.name for requirement in needed]


@pytest.fixture
def game_server(tmp_path: Path) -> Path:
    """A virtual environment with the client and `websockets`, and nothing else."""
    wheel = build(CLIENT, tmp_path / "dist")
    return environment_with(tmp_path / "venv", ["websockets"], wheel)


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda folder: folder.name)
def test_a_wheel_can_be_published_as_it_is(folder: Path, tmp_path: Path) -> None:
    """With a description that an index shows, a licence, types, and no address of anything."""
    wheel = build(folder, tmp_path)
    (sdist,) = tmp_path.glob("*.tar.gz")
    archive, name = ZipFile(wheel), sdist.name.removesuffix(".tar.gz")
    metadata = message_from_bytes(archive.read(f"{name}.dist-info/METADATA"), policy=default)
    description = metadata.get_content()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert markdown.render(description) is not None
    assert not re.search(r"\]\((?!\w+://)", description)  # nothing that only a checkout has
    assert len(metadata["Summary"]) <= 512
    assert (metadata["License-Expression"], metadata["License-File"]) == ("MIT", "LICENSE")
    licence = archive.read(f"{name}.dist-info/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or ())
    package = name.rpartition("-")[0]
    assert f"{package}/py.typed" in archive.namelist()
    assert "Project-URL" not in metadata  # nothing is published yet
    with tarfile.open(sdist) as source:
        held = {path.name for path in map(Path, source.getnames()) if path.parent == Path(name)}
    assert {"LICENSE", "pyproject.toml", "PKG-INFO"} <= held


def test_the_servers_wheel_holds_no_evaluation_and_no_test_doubles(tmp_path: Path) -> None:
    """Nor the packages that it depends on."""
    held = [Path(name) for name in ZipFile(build(SERVER, tmp_path)).namelist()]
    assert {path.parts[0] for path in held} == {"foremind", f"foremind-{__version__}.dist-info"}
    packages = (
        CLIENT / "foremind_client", EVALUATION / "foremind_eval", TRANSPORT / "fair_transport",
        MODELS / "foremind_models",
    )  # fmt: skip
    others = {
        file.name
        for package in packages
        for file in package.rglob("*.py")
        if file.name != "__init__.py"
    }
    assert {"socket_client.py", "recall.py", "manual_clock.py", "channel.py", "graphs.py"} <= others
    assert not {path.name for path in held} & others
    assert {"kontra.mjs", "kontra.LICENSE"} <= {path.name for path in held}


def test_the_distributions_have_one_version() -> None:
    """Each requires exactly that of the others, so that none meets a stranger."""
    pinned = set()
    for folder in DISTRIBUTIONS:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        assert project.get("version", __version__) == __version__
        optional = project.get("optional-dependencies", {})
        for requirement in [*project["dependencies"], *optional.get("eval", [])]:
            if requirement.startswith(OURS):
                name, _, version = requirement.partition("==")
                assert version == __version__, requirement
                pinned.add(name)
    names = {"foremind-client", "foremind-eval", "foremind-models", "fair-transport"}
    assert pinned == {"foremind", *names}


async def test_a_game_server_needs_only_the_client_and_websockets(
    game_server: Path, start: StartServer
) -> None:
    """It talks to a server, without any of the server's dependencies."""
    python = game_server / "bin" / "python"
    server = await start()
    program = await asyncio.create_subprocess_exec(
        python, "-I", "-c", TALK, server.url, stdout=asyncio.subprocess.PIPE
    )
    output = (await program.communicate())[0].decode()
    assert output.split() == ["completed"]


@pytest.mark.timeout(900)
def test_the_wheels_serve_from_an_empty_environment(tmp_path: Path) -> None:
    """With the locked dependencies and nothing of this checkout."""
    dist = tmp_path / "dist"
    needed = [build(folder, dist) for folder in (CLIENT, TRANSPORT, MODELS, SERVER)]
    environment = environment_with(tmp_path / "venv", locked("runtime.txt"), *needed)
    assert foremind(environment, "--version").stdout.strip() == __version__
    server = subprocess.Popen(
        [environment / "bin" / "foremind", "serve", "--port", "0"],
        cwd=tmp_path,
        env=os.environ | {"FOREMIND_DATA_DIR": str(tmp_path / "data")},
        stderr=subprocess.PIPE,
    )
    assert server.stderr is not None
    output = b""
    while b"Foremind is ready on " not in output:
        line = server.stderr.readline()
        assert line, output.decode()
        output += line
    address = output.decode().rpartition("ready on ")[2].split()[0]
    with urllib.request.urlopen(f"{address}/readyz") as response:
        assert response.status == 200
    with urllib.request.urlopen(f"{address}/") as response:
        assert b"foremind" in response.read().lower()
    socket = f"{address.replace('http', 'ws', 1)}/v1/ws"
    chat = foremind(environment, "chat", "--url", socket, said="Good morning, little bird\n")
    assert re.match(r"Wren: \S", chat.stdout), chat.stderr
    server.send_signal(signal.SIGINT)
    server.communicate()
    assert server.returncode == 0
    _check_that_evaluation_is_an_extra(environment, dist)


def _check_that_evaluation_is_an_extra(environment: Path, dist: Path) -> None:
    """Its commands say what to install until it is installed."""
    commands = ("bench", "all"), ("bench", "--help"), ("eval", "layers"), ("models", "bench")
    for command in commands:
        answer = foremind(environment, *command)
        assert answer.returncode == 2
        assert answer.stdout == ""
        assert len(answer.stderr.splitlines()) == 1
        assert "pip install 'foremind[eval]'" in answer.stderr
    needed = ROOT / "requirements" / "eval.txt"
    pip(environment, "install", "--quiet", "--no-deps", "--require-hashes", "-r", needed)
    wheel = build(EVALUATION, dist)
    pip(environment, "install", "--quiet", "--no-deps", "--no-index", wheel)
    for command_path in ("bench", "eval", "models bench"):
        answer = foremind(environment, *command_path.split(), "--help")
        assert answer.returncode == 0
        assert f"Usage: foremind {command_path} " in answer.stdout


def foremind(
    environment: Path, *arguments: str, said: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run a command of the installed server in the environment's own folder."""
    return subprocess.run(
        [environment / "bin" / "foremind", *arguments],
        cwd=environment,
        input=said,
        capture_output=True,
        text=True,
        check=False,
    )
