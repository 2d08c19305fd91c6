"""A real language model: SmolLM2-135M-Instruct on a llama.cpp server with one slot."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from foremind_eval.processes.server_process import free_port, quiet_server

MODEL = "SmolLM2-135M-Instruct"
#: The model's context length in tokens.
CONTEXT_TOKENS = 8192

_ATTEMPTS, _RETRY_S = 600, 0.2  # patient with a busy machine
_PROGRAM = Path(__file__).parent / "serve_real_model.py"
_ENVIRONMENT = Path(sys.prefix) / "real-model"  # created by `make demo` and `make test`


@contextmanager
def real_model(threads: int = 2, *batch_tokens: int) -> Iterator[str]:
    """Run the model server in its own process and virtual environment; yield its URL.

    Its threads spin while they wait for each other: use one where others need the processors. A
    request that is cancelled while its prompt is read ends after `batch_tokens`, by default 512.
    """
    port = free_port()
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        sys.exit(f"There is no real model in {_ENVIRONMENT}: run `make demo` to install it.")
    numbers = (port, CONTEXT_TOKENS, threads, *batch_tokens)
    command = [str(python), str(_PROGRAM), *map(str, numbers)]
    with quiet_server(command, port):
        _wait_until_loaded(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}/v1"


def _wait_until_loaded(health_url: str) -> None:
    """Wait until the model is loaded; until then its server responds with 503."""
    for _ in range(_ATTEMPTS):
        if httpx2.get(health_url).is_success:
            return
        time.sleep(_RETRY_S)
    sys.exit("The model server did not load the model in time.")
