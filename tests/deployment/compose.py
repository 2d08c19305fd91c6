"""The services of deploy/compose.yaml, as docker-compose itself reads them."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT
from tests.programs import program

FOLDER = ROOT / "deploy"
#: The host that players connect to.
DOMAIN = "game.example"
_FILE = FOLDER / "compose.yaml"


@dataclass(frozen=True, slots=True)
class Service:
    """A service: what a process needs to stand for it, and its other keys."""

    environment: Mapping[str, str]
    entrypoint: list[str]
    command: list[str]
    options: Mapping[str, Any]


def new_variables(certificate: Path) -> dict[str, str]:
    """Return the variables that new-env.sh prints, with what an operator fills in."""
    text = subprocess.run(
        ["sh", str(FOLDER / "compose" / "new-env.sh")], capture_output=True, text=True, check=True
    ).stdout
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    filled = {"TLS_PEM": str(certificate), "DOMAIN": DOMAIN}
    return dict(line.split("=", 1) for line in lines) | filled


def check(variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Have docker-compose read the file with exactly these variables; it prints the result."""
    return subprocess.run(
        [program("docker-compose"), "--file", str(_FILE), "config"],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def services(variables: Mapping[str, str]) -> dict[str, Service]:
    """Return the services by name."""
    outcome = check(variables)
    assert outcome.returncode == 0, outcome.stderr
    read = yaml.safe_load(outcome.stdout)["services"]
    return {name: _service(options) for name, options in read.items()}


def _service(options: Mapping[str, Any]) -> Service:
    environment = options.get("environment") or {}
    return Service(
        environment={name: value for name, value in environment.items() if value is not None},
        entrypoint=options.get("entrypoint") or [],
        command=options.get("command") or [],
        options=options,
    )
