"""Vectors are compared by the thread that asks."""

import subprocess
import sys
from pathlib import Path

import pytest

_COMPARE = """
import os
from foremind.retrieval.index import memory_index
import numpy as np
np.ones((20_000, 384), np.float32) @ np.ones(384, np.float32)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux")
def test_no_threads_are_started_to_compare_vectors() -> None:
    """On a busy machine the event loop would wait until each of them has had its turn."""
    program = [sys.executable, "-c", _COMPARE]
    run = subprocess.run(program, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "1"
