"""`make demo`: the server and its page with a small real language model on this machine."""

import contextlib
import os
import signal
import subprocess
import sys

import typer

from foremind_eval.processes.real_model import CONTEXT_TOKENS, MODEL, real_model

#: What the server is told besides the address of the model.
VARIABLES = {
    "FOREMIND_LLM_MODEL": MODEL,
    "FOREMIND_LLM_AHEAD": "reply",
    "FOREMIND_LLM_SLOTS": "1",
    "FOREMIND_LLM_MAX_TOKENS": "80",
    "FOREMIND_CONTEXT_TOKENS": str(CONTEXT_TOKENS),
    # So small a model chats; what it would write into records is not worth reading.
    "FOREMIND_LAYERS_OFF": "summary,episodes,topics,scratchpad,hot,questions,opening",
}


def main() -> None:
    """Run the model and the server until Ctrl-C, which both receive, or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    typer.echo(f"Starting {MODEL} ...")
    with real_model(
        threads=max(1, (os.cpu_count() or 2) // 2)
    ) as url:  # the server needs some, too
        command = [sys.executable, "-m", "foremind", "serve"]
        server = subprocess.Popen(command, env={**os.environ, **VARIABLES, "FOREMIND_LLM_URL": url})  # noqa: S603
        try:
            while server.poll() is None:
                with contextlib.suppress(KeyboardInterrupt):
                    server.wait()
        finally:
            server.terminate()
            server.wait()
    sys.exit(server.returncode)


if __name__ == "__main__":
    main()
