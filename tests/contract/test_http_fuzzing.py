"""Random requests within the described HTTP API get described responses, never a server error."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from foremind.api.openapi import openapi
from foremind.app.configuration import load_settings
from foremind_client import connect
from foremind_eval.processes.server_process import running_server
from foremind_models import ConvertedEncoder
from tests.conftest import FIRST_RELATIONSHIP

# Draining would end the server for all other requests; /metrics takes no input.
_EXCLUDED = ("/v1/admin/drain", "/metrics")
_EXAMPLES_PER_OPERATION = 40


schema = schemathesis.openapi.from_dict(openapi()).exclude(path=list(_EXCLUDED))


@schemathesis.serializer(
    "application/pdf", "application/x-ndjson", "application/zip", "image/apng", "image/png"
)
def file_as_generated(_: Any, value: Any) -> bytes:
    """Send a document or a card as it was generated."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def address(model: ConvertedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server in its own process, with an embedded database."""
    folder = tmp_path_factory.mktemp("fuzzed")
    server_settings = load_settings(
        data_dir=folder, models_path=Path(os.environ["FOREMIND_MODELS_PATH"])
    )
    with running_server(server_settings, {"FOREMIND_HTTP_PER_S": "1e9"}) as (url, _):
        asyncio.run(_store_data(url))
        yield url.replace("ws://", "http://").removesuffix("/v1/ws")


async def _store_data(url: str) -> None:
    """Store some messages and memories to request."""
    async with connect(url) as client:
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        assert opened["relationship_id"] == str(FIRST_RELATIONSHIP)
        for text in ("I promise to bring the map", "My name is Ana and I love rain"):
            await client.send(text)
            await client.expect_all("response.done", "memory.stored")


@schema.parametrize()
@settings(
    max_examples=_EXAMPLES_PER_OPERATION, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_request_causes_a_server_error(case: "schemathesis.Case[Any]", address: str) -> None:
    """Any path, query and body get a described response or a described error."""
    case.query = {**(case.query or {}), "user": "ana"}
    if str(case.path_parameters.get("id", "")).isdigit():
        case.path_parameters["id"] = (
            FIRST_RELATIONSHIP  # Ana's, so that not every response is "not found"
        )
    response = case.call(base_url=address)
    case.validate_response(response, checks=[not_a_server_error, response_schema_conformance])
