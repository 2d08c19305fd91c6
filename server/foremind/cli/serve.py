"""`foremind serve`: runs the server."""

import asyncio
import os
import signal
from pathlib import Path

import typer

from foremind.app import serving
from foremind.cli.running import run, say
from foremind.domain.settings import Settings, load_settings
from foremind.runtime.logs import configure_logging


def serve(
    host: str | None = typer.Option(None, help="Address to listen on. Overrides FOREMIND_HOST."),
    port: int | None = typer.Option(
        None, help="Port to listen on; 0 picks a free one. Overrides FOREMIND_PORT."
    ),
    data_dir: Path | None = typer.Option(
        None, help="Folder of the embedded database and models. Overrides FOREMIND_DATA_DIR."
    ),
) -> None:
    """Run the server: WebSocket, HTTP API and demo page.

    All settings are read from the environment (FOREMIND_...) and from foremind.toml in the working
    directory. Without FOREMIND_DATABASE_URL, the server runs its own PostgreSQL in the data
    directory. Ctrl-C finishes accepted messages and stops; a second Ctrl-C exits at once.
    """
    settings = load_settings(host=host, port=port, data_dir=data_dir)
    configure_logging(settings)
    run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_or_exit, stop)
    async with serving(settings, say=say) as (app, port):
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        names = ", ".join(companion.name for companion in await app.core.companions.list())
        say(f"Companions: {names}. Embedding model: {settings.embedding_model}.")
        if settings.llm_url:
            say(f"Language model: {settings.llm_model} at {settings.llm_url}")
        else:
            say(
                "No language model is configured: an offline model answers from what it recalls. "
                "Set FOREMIND_LLM_URL and FOREMIND_LLM_MODEL to connect one."
            )
        say(f"Foremind is ready on http://{host}:{port} (Ctrl-C stops it)")
        await stop.wait()
        say("Stopping: finishing accepted messages ...")
    say("Stopped.")


def _stop_or_exit(stop: asyncio.Event) -> None:
    """Stop gracefully; on a second signal exit at once, which loses nothing accepted."""
    if stop.is_set():
        os._exit(130)
    stop.set()
