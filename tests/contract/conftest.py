"""Node with the locked packages of others that read what Foremind writes."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs node with the locked npm packages."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("node and npm are not installed; CI installs them")
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "package-lock.json", ".npmrc", "validate.mjs", "cards.mjs"):
        shutil.copy(HERE / name, folder)
    subprocess.run([npm, "ci"], cwd=folder, check=True, capture_output=True, timeout=300)

    def run(*command: str) -> CompletedProcess[str]:
        return subprocess.run(
            ["node", *command], cwd=folder, capture_output=True, text=True, check=False, timeout=100
        )

    return run
