"""Node with the locked packages of others that read what Foremind writes."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.contract.committed import install_npm_packages


@pytest.fixture(scope="module")
def npm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the locked npm packages; installed once for all modules that use it."""
    if shutil.which("npm") is None:
        pytest.skip("node and npm are not installed; CI installs them")
    folder = tmp_path_factory.getbasetemp() / "npm"
    if not folder.exists():
        folder.mkdir()
        install_npm_packages(folder)
    return folder


@pytest.fixture(scope="module")
def node(npm_folder: Path) -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs node with the locked npm packages."""

    def run(*command: str) -> CompletedProcess[str]:
        return subprocess.run(
            ["node", *command],
            cwd=npm_folder, capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip

    return run
