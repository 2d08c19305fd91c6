"""A small disk that can be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SIZE = "160m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system; skips the test without permission to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Leave almost no space on a disk while the block runs."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    ballast.write_bytes(b"\0" * max(0, free.f_bavail * free.f_bsize - 65_536))
    try:
        yield
    finally:
        ballast.unlink()
