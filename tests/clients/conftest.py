"""The driver of the client in C#, compiled."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.contract.committed import UNITY


@pytest.fixture(scope="session")
def csharp_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the client and its driver; warnings are errors."""
    program = tmp_path_factory.mktemp("csharp") / "driver.exe"
    compile_csharp(program, Path(__file__).with_name("Driver.cs"))
    return program


def compile_csharp(result: Path, *sources: Path, target: str = "exe") -> None:
    """Compile sources with the client, by Mono's compiler."""
    if shutil.which("mcs") is None or shutil.which("mono") is None:
        pytest.skip("mcs and mono are not installed; CI installs them")
    command = ["mcs", "-langversion:7", "-warnaserror", f"-target:{target}", f"-out:{result}"]
    files = [*map(str, sources), *map(str, sorted(UNITY.glob("*.cs")))]
    compiled = subprocess.run(
        [*command, *files], capture_output=True, text=True, check=False, timeout=120
    )
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
