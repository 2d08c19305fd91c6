"""Environments of their own for what is measured beside Foremind, made once in the data folder."""

import subprocess
import sys
import venv
from pathlib import Path


def environment(folder: Path, requirements: Path) -> Path:
    """Return the Python of an environment with some requirements, making it where there is none."""
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        print(f"Making the environment {folder.name} (once) ...")
        venv.create(folder, with_pip=True, clear=True)
        check([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)])
        (folder / "made").touch()
    return python


def check(command: list[str]) -> None:
    """Run a command, and end the program where it fails."""
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"This failed: {' '.join(command)}")
