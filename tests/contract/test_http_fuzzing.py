"""HTTP as described, with anything in it: answered as described, and never with a defect."""

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
from foremind.client import connect
from foremind.domain.settings import load_settings
from foremind.retrieval.embedding.conversion import ConvertedEncoder
from foremind.testing.server_process import running_server

# What would end the test for everybody, and what fetches nothing but metrics.
_LEFT_OUT = ("/v1/admin/drain", "/metrics")
_EXAMPLES = 40  # of each operation


schema = schemathesis.openapi.from_dict(openapi()).exclude(path=list(_LEFT_OUT))


@schemathesis.serializer("application/pdf")
def pdf(_: Any, value: Any) -> bytes:
    """A document is sent as it was drawn."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def address(model: ConvertedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A whole server in a process of its own, on its embedded database."""
    folder = tmp_path_factory.mktemp("fuzzed")
    own = load_settings(data_dir=folder, models_path=Path(os.environ["FOREMIND_MODELS_PATH"]))
    with running_server(own, {"FOREMIND_HTTP_PER_S": "1e9"}) as (url, _):
        asyncio.run(_talk(url))
        yield url.replace("ws://", "http://").removesuffix("/v1/ws")


async def _talk(url: str) -> None:
    """Let there be something to ask for."""
    async with connect(url) as client:
        opened = await client.open_session("wren", user_id="ana", name="Ana")
        assert opened["relationship_id"] == "1"
        for text in ("I promise to bring the map", "My name is Ana and I love rain"):
            await client.send(text)
            await client.expect_all("response.done", "memory.stored")


@schema.parametrize()
@settings(
    max_examples=_EXAMPLES, deadline=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_request_is_answered_with_a_defect(case: "schemathesis.Case[Any]", address: str) -> None:
    """Whatever stands in path, query and body: a described answer or a described error."""
    case.query = {**(case.query or {}), "user": "ana"}
    if str(case.path_parameters.get("id", "")).isdigit():
        case.path_parameters["id"] = 1  # Ana's, so that it comes to more than "not found"
    response = case.call(base_url=address)
    case.validate_response(response, checks=[not_a_server_error, response_schema_conformance])
