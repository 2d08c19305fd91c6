"""Virtual environments for the systems that Foremind is compared with, created once."""

import subprocess
import sys
import venv
from pathlib import Path


def environment(folder: Path, requirements: Path) -> Path:
    """Return the Python of a virtual environment, creating it if it does not exist.

    Its path is absolute: it is run from other folders.
    """
    folder = folder.absolute()
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        print(f"Creating the environment {folder.name} (once) ...")
        venv.create(folder, with_pip=True, clear=True)
        check([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)])
        (folder / "made").touch()
    return python


def check(command: list[str]) -> None:
    """Run a command; exit if it fails."""
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"Command failed: {' '.join(command)}")
