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
    "FOREMIND_LLM_AHEAD": "prefill",
    "FOREMIND_LLM_SLOTS": "1",
    "FOREMIND_LLM_MAX_TOKENS": "80",
    "FOREMIND_LLM_TEMPERATURE": "0.5",
    "FOREMIND_LLM_EXTRA": '{"repeat_penalty": 1.15}',  # otherwise it often says one thing twice
    "FOREMIND_CONTEXT_TOKENS": str(CONTEXT_TOKENS),
    # What is recalled is read again whenever it changes while one types.
    "FOREMIND_RECALL_LIMIT": "3",
    # So small a model chats; what it would write into records is not worth reading, and writing it
    # would push the conversation out of its cache.
    "FOREMIND_LLM_BACKGROUND": "off",
    "FOREMIND_LAYERS_OFF": "summary,episodes,topics,scratchpad,hot,questions,opening",
}
_BATCH_TOKENS = 64  # what is read ahead ends soon after Enter, also on a slow machine


def main() -> None:
    """Run the model and the server until Ctrl-C, which both receive, or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    typer.echo(f"Starting {MODEL} ...")
    threads = max(1, min(4, (os.cpu_count() or 1) - 1))  # the server and a browser need one
    with real_model(threads, _BATCH_TOKENS) as url:
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
