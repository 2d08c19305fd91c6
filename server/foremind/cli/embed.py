"""`foremind embed`: serves the embedding model to gateways on this and other machines."""

import asyncio
import os
import signal
from pathlib import Path

import typer

from foremind.app.embedding_server import serving_embeddings
from foremind.cli.running import run, say
from foremind.domain.settings.settings import Settings, load_settings
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
    run(_serve(settings, threads or os.cpu_count() or 1))


async def _serve(settings: Settings, threads: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving_embeddings(settings, threads, say=say) as port:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        say(f"{settings.embedding_model} is ready on http://{host}:{port}/v1 (Ctrl-C stops it)")
        await stop.wait()
