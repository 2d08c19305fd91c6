"""A real language model: SmolLM2-135M-Instruct on a llama.cpp server with one slot."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from foremind.testing.server_process import free_port, quiet_server

#: Tokens that the model takes in.
CONTEXT_TOKENS = 8192

_TRIES, _PAUSE_S = 600, 0.2  # a machine may be busy
_PROGRAM = Path(__file__).parent / "serve_real_model.py"
_ENVIRONMENT = Path(sys.prefix) / "real-model"  # made by `make test` and `make background`


@contextmanager
def real_model() -> Iterator[str]:
    """Run the model server in a process and an environment of its own; yield its URL."""
    port = free_port()
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        sys.exit(f"There is no real model in {_ENVIRONMENT}: `make test` makes it.")
    with quiet_server([str(python), str(_PROGRAM), str(port), str(CONTEXT_TOKENS)], port):
        _wait_until_loaded(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}/v1"


def _wait_until_loaded(health: str) -> None:
    """Return once the model can be asked; before that its server answers 503."""
    for _ in range(_TRIES):
        if httpx2.get(health).is_success:
            return
        time.sleep(_PAUSE_S)
    sys.exit("The model was not loaded.")
