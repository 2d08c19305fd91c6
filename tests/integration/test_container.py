"""The container file, step by step in a clean folder: what it builds serves, as it says."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from foremind_eval.processes.server_process import free_port
from tests.conftest import ROOT


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, with its continued lines joined."""

    name: str
    rest: str


def stages() -> list[list[Instruction]]:
    """Return the steps of each stage, its FROM first."""
    text = re.sub(r"^#.*\n", "", (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.M)
    lines = text.replace("\\\n", " ").splitlines()
    steps = [Instruction(*line.split(maxsplit=1)) for line in lines if line.strip()]
    found: list[list[Instruction]] = []
    for step in steps:
        if step.name == "FROM":
            found.append([])
        found[-1].append(step)
    return found


@dataclass(frozen=True, slots=True)
class Image:
    """A folder that stands for the image's root, where a build writes to."""

    root: Path

    def inside(self, text: str) -> str:
        """Return a text with the image's folders where they are here."""
        return re.sub(r"(?<![\w.])/(opt/foremind|src|data)\b", rf"{self.root}/\1", text)

    def build(self, steps: list[Instruction]) -> None:
        """Copy and run what the steps say."""
        folder = self.root
        for step in steps:
            if step.name == "WORKDIR":
                folder = Path(self.inside(step.rest))
                folder.mkdir(parents=True)
            elif step.name == "COPY":
                *sources, target = step.rest.split()
                for source in sources:
                    self._copy(ROOT / source, folder / target)
            elif step.name == "RUN":
                subprocess.run(["bash", "-ec", self.inside(step.rest)], cwd=folder, check=True)

    def environment(self, steps: list[Instruction]) -> dict[str, str]:
        """Return what the last stage sets, over a path of its own."""
        given = {"PATH": "/usr/bin:/bin"}
        for step in steps:
            if step.name == "ENV":
                for pair in shlex.split(self.inside(step.rest)):
                    name, _, value = pair.partition("=")
                    given[name] = value.replace("$PATH", given["PATH"])
        return given

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, target, ignore=ignored)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def arguments(steps: list[Instruction], name: str) -> list[str]:
    """Return the words of an instruction that is written as JSON."""
    (step,) = [step for step in steps if step.name == name]
    words: list[str] = json.loads(step.rest[step.rest.index("[") :])
    return words


@pytest.mark.timeout(900)
def test_what_the_container_file_builds_serves(tmp_path: Path) -> None:
    """`foremind` is on its path; it wants authentication; its health check finds it healthy."""
    build, final = stages()
    assert {step.name for step in build} <= {"FROM", "WORKDIR", "COPY", "RUN"}
    image = Image(tmp_path / "image")
    image.build(build)
    port = free_port()
    given = image.environment(final) | {"FOREMIND_PORT": str(port), "HOME": str(tmp_path)}
    command = [*arguments(final, "ENTRYPOINT"), *arguments(final, "CMD")]
    assert command == ["foremind", "serve"]
    program = shutil.which(command[0], path=given["PATH"])
    assert program == f"{image.root}/opt/foremind/bin/foremind"
    installed = {path.name.partition("-")[0] for path in image.root.rglob("*.dist-info")}
    assert {"foremind", "uvicorn"} <= installed
    assert not installed & {"hatchling", "editables", "pip", "setuptools"}
    refused = subprocess.run(
        [program, "serve"], env=given, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "FOREMIND_AUTH_SECRET" in refused.stderr
    given["FOREMIND_AUTH_SECRET"] = os.urandom(32).hex()
    server = subprocess.Popen(
        [program, "serve"], env=given, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        assert any("Foremind is ready" in line for line in server.stderr)
        (check,) = [step for step in final if step.name == "HEALTHCHECK"]
        python, *words = json.loads(check.rest[check.rest.index("[") :])
        python = shutil.which(python, path=given["PATH"])
        subprocess.run([python, *words], env=given, check=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()
    assert server.returncode == 0
