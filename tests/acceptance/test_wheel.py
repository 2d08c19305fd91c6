"""The built wheel runs a server in an empty environment."""

import os
import signal
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.timeout(600)
def test_the_wheel_serves_from_an_empty_environment(tmp_path: Path) -> None:
    """With the locked dependencies and nothing of this checkout."""
    folder = tmp_path / "dist"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    lock = ROOT / "requirements" / "runtime.txt"
    subprocess.run([*pip, "--require-hashes", "-r", str(lock)], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
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
    server.send_signal(signal.SIGINT)
    server.communicate()
    assert server.returncode == 0
