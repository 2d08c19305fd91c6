"""`foremind serve`: the server."""

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
    host: str | None = typer.Option(None, help="Address to listen on (FOREMIND_HOST)."),
    port: int | None = typer.Option(None, help="Port to listen on (FOREMIND_PORT)."),
    data_dir: Path | None = typer.Option(
        None, help="Embedded database and models (FOREMIND_DATA_DIR)."
    ),
) -> None:
    """Serve the page, HTTP and the WebSocket.

    Without FOREMIND_DATABASE_URL it runs its own PostgreSQL under the data directory.
    """
    settings = load_settings(host=host, port=port, data_dir=data_dir)
    configure_logging(settings)
    run(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_or_leave, stop)
    async with serving(settings, say=say) as (app, port):
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        names = ", ".join(each.name for each in await app.core.companions.list())
        say(f"Companions: {names}. Embedding model: {settings.embedding_model}.")
        if settings.llm_url:
            say(f"Language model: {settings.llm_model} at {settings.llm_url}")
        else:
            say(
                "No language model is configured: an offline voice answers from what it recalls. "
                "Set FOREMIND_LLM_URL and FOREMIND_LLM_MODEL to connect one."
            )
        say(f"Foremind is ready on http://{host}:{port} (Ctrl-C stops it)")
        await stop.wait()
        say("Stopping: finishing what was accepted ...")
    say("Stopped.")


def _stop_or_leave(stop: asyncio.Event) -> None:
    """Stop in an orderly way; a second signal leaves at once, which loses nothing accepted."""
    if stop.is_set():
        os._exit(130)
    stop.set()
