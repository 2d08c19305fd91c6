"""Logs never contain player text."""

import logging

import pytest
import structlog

from foremind.app.configuration import load_settings
from foremind.runtime.logs import configure_logging

SECRET_WORDS = "my diary says"


@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("by", ["structlog", "logging"])
def test_an_exception_is_logged_without_its_message_or_locals(
    log_format: str, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both may quote player text."""
    configure_logging(load_settings(log_format=log_format))

    def fails(text: str) -> None:
        raise ValueError(f"cannot store {text}")

    try:
        fails(SECRET_WORDS)
    except ValueError:
        if by == "structlog":
            structlog.get_logger("test").exception("test.failed", turn_id=7)
        else:
            logging.getLogger("test").exception("test.failed")
    finally:
        logged = capsys.readouterr().err
    assert "test.failed" in logged
    assert "ValueError" in logged
    assert SECRET_WORDS not in logged
