"""`foremind serve`: runs the server."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import typer

from foremind.app.configuration import load_settings
from foremind.app.embedding_server import serving_embeddings
from foremind.app.listening import bind
from foremind.app.server import serving
from foremind.app.workers import WORKER_STOP_S, Parent, Workers, public_url, serving_workers
from foremind.cli.running import exit_after, first_of, run, say
from foremind.domain.settings.settings import Settings, is_loopback
from foremind.llm.model_probe import find_local_servers
from foremind.runtime.logs import configure_logging

_PORT = 8769  # below that of `foremind serve`, whose workers take those above it


def embed(
    host: str | None = typer.Option(None, help="Address to listen on. Overrides FOREMIND_HOST."),
    port: int = typer.Option(_PORT, help="Port to listen on; 0 picks a free one."),
    threads: int = typer.Option(
        0, min=0, max=256, help="Texts embedded at a time; by default one per core."
    ),
    data_dir: Path | None = typer.Option(
        None, help="Folder of the embedding model. Overrides FOREMIND_DATA_DIR."
    ),
) -> None:
    """Serve the embedding model over OpenAI's interface.

    Gateways use it with FOREMIND_EMBEDDING_URL. Outside loopback it needs FOREMIND_EMBEDDING_KEY.
    """
    settings = load_settings(host=host, port=port, data_dir=data_dir)
    configure_logging(settings)
    run(_serve_embeddings(settings, threads or os.cpu_count() or 1))


async def _serve_embeddings(settings: Settings, threads: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving_embeddings(settings, threads, say=say) as port:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        say(f"{settings.embedding_model} is ready on http://{host}:{port}/v1 (Ctrl-C stops it)")
        await stop.wait()


# After the grace period for replies: the default of both is less than the 30 seconds that systemd,
# Kubernetes and Compose are told to wait.
_STOP_S = WORKER_STOP_S + 5.0


def serve(
    host: str | None = typer.Option(None, help="Address to listen on. Overrides FOREMIND_HOST."),
    port: int | None = typer.Option(
        None, help="Port to listen on; 0 picks a free one. Overrides FOREMIND_PORT."
    ),
    data_dir: Path | None = typer.Option(
        None, help="Folder of the embedded database and models. Overrides FOREMIND_DATA_DIR."
    ),
    workers: int | None = typer.Option(
        None, help="Gateway processes that share the port. Overrides FOREMIND_WORKERS."
    ),
    as_worker: tuple[int, int] = typer.Option((0, 0), hidden=True),
) -> None:
    """Run the server: WebSocket, HTTP API and demo page.

    All settings are read from the environment (FOREMIND_...) and from foremind.toml in the working
    directory. Without FOREMIND_DATABASE_URL, the server runs its own PostgreSQL in the data
    directory. Ctrl-C finishes accepted messages and stops; a second Ctrl-C exits at once.
    """
    settings = load_settings(host=host, port=port, data_dir=data_dir, workers=workers)
    configure_logging(settings)
    if any(as_worker):
        run(_work(settings, Parent(*as_worker)))
    elif settings.workers > 1:
        run(_serve_workers(settings))
    else:
        run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_or_exit, stop, settings)
    bound: socket.socket | None = None
    with ExitStack() as stack:

        def open_socket() -> socket.socket:
            nonlocal bound
            bound = bound or stack.enter_context(bind(settings))
            return bound

        while not stop.is_set():
            await _serve_once(settings, open_socket, stop)
    say("Stopped.")


async def _serve_once(
    settings: Settings, open_socket: Callable[[], socket.socket], stop: asyncio.Event
) -> None:
    """Serve until the process is to stop, or the embedding model was replaced.

    Who connects between two servers waits for the second.
    """
    async with serving(settings, say=say, open_socket=open_socket) as (app, port):
        names = ", ".join(companion.name for companion in await app.core.stores.companions.list())
        say(f"Companions: {names}. Embedding model: {app.core.embedder.manifest.name}.")
        if settings.llm_url:
            say(f"Language model: {settings.llm_model} at {settings.llm_url}")
        else:
            say(
                "No language model is configured: an offline model answers from what it recalls. "
                "Set FOREMIND_LLM_URL and FOREMIND_LLM_MODEL to connect one."
            )
            for found in await find_local_servers() if is_loopback(settings.host) else []:
                model = found.models[0] if found.models else "…"
                say(
                    f"{found.program} was found on this machine. To use it: "
                    f"FOREMIND_LLM_URL={found.url} FOREMIND_LLM_MODEL={model}"
                )
        await _wait(settings, port, stop, app.model_replaced)


async def _serve_workers(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    running: Workers | None = None

    def kill_workers() -> None:
        if running is not None:
            running.kill()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_or_exit, stop, settings, kill_workers)
    async with serving_workers(settings, say=say) as (workers, port):
        running = workers
        await first_of(stop, workers.started)
        if not stop.is_set():
            workers.check_started()
            if public_url(settings) is None:
                say(
                    "Clients cannot be told where workers are: each serves whatever it accepts. "
                    "Set FOREMIND_PUBLIC_URL."
                )
            await _wait(settings, port, stop, asyncio.Event())
    say("Stopped.")


async def _work(settings: Settings, parent: Parent) -> None:
    """Run one of the workers of a parent, until that says so or ends."""
    stop = asyncio.Event()
    parent.when_gone(stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():  # again with another embedding model
        async with serving(settings, shared=parent.shared) as (app, _):
            parent.report_ready()
            await first_of(stop, app.model_replaced)
            if stop.is_set():
                exit_after(settings.drain_s + WORKER_STOP_S)


async def _wait(
    settings: Settings, port: int, stop: asyncio.Event, model_replaced: asyncio.Event
) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    say(f"Foremind is ready on http://{host}:{port} (Ctrl-C stops it)")
    await first_of(stop, model_replaced)
    again = "" if stop.is_set() else " The embedding model was replaced: starting again with it."
    say(f"Stopping: finishing accepted messages ...{again}")


def _stop_or_exit(
    stop: asyncio.Event, settings: Settings, kill_workers: Callable[[], None] = lambda: None
) -> None:
    """Stop gracefully; on a second signal exit at once, which loses nothing accepted."""
    if stop.is_set():
        kill_workers()
        os._exit(130)
    exit_after(settings.drain_s + _STOP_S, kill_workers)
    stop.set()
