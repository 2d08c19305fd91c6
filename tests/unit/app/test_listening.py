"""The transport as settings say, and its errors as those of Foremind."""

from typing import Any

import msgspec
import pytest

from fair_transport import Refusal
from foremind.app.configuration import load_settings
from foremind.app.listening import _error_body, listening
from foremind.domain.errors import SetupError


async def serve(*_: Any) -> None:
    """An application that is not asked."""


async def test_a_limit_beyond_the_file_descriptors_is_refused_at_startup() -> None:
    """Naming the setting, and the system limit to raise."""
    settings = load_settings(host="127.0.0.1", port=0, max_connections=1_000_000_000)
    with pytest.raises(SetupError, match=r"FOREMIND_MAX_CONNECTIONS: .* need .*LimitNOFILE"):
        async with listening(serve, settings):
            pass


async def test_an_address_that_is_in_use_is_named() -> None:
    """With what to do."""
    settings = load_settings(host="127.0.0.1", port=0)
    async with listening(serve, settings) as port:
        used = load_settings(host="127.0.0.1", port=port)
        with pytest.raises(SetupError, match=rf"Cannot listen on 127\.0\.0\.1:{port}: .*--port"):
            async with listening(serve, used):
                pass


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request_error", False),
        (405, "invalid_request_error", False),
        (408, "unavailable_error", True),
        (431, "invalid_request_error", False),
        (500, "server_error", False),
        (503, "unavailable_error", True),
    ],
)
def test_a_refusal_of_the_transport_is_an_error_like_any(
    status: int, kind: str, retryable: bool
) -> None:
    """Its type says what it is, by its status."""
    body = msgspec.json.decode(_error_body(Refusal(status, "a_code", "a message")))
    assert body == {
        "error": {
            "type": kind,
            "code": "a_code",
            "message": "a message",
            "param": None,
            "retryable": retryable,
        }
    }
