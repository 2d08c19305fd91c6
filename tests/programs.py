"""Programs that tests run: from the environment, or what .ci/run installs on a bare machine."""

import os
import shutil
import sys
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Return the path of a program; without it, skip the test, but fail it in CI."""
    folders = [str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if path is None:
        reason = f"{name} is not installed; .ci/run installs it"
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
    return path
