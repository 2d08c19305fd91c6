"""The contracts match the implementation: examples, routes, the official parser, types."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import get_args

import httpx2
import msgspec
import pytest
from starlette.routing import Route

from foremind.api.openapi import OPERATIONS, openapi
from foremind.api.turn_shapes import StreamEvent
from foremind.gateway.protocol.asyncapi import EXAMPLES, asyncapi, client_messages, server_events
from foremind.gateway.protocol.decoding import decode
from foremind.gateway.protocol.server_events import encode
from tests.conftest import PATIENCE, StartServer
from tests.contract.check import check_event, document, validator
from tests.contract.committed import generated


def test_every_message_has_a_valid_example() -> None:
    """Each matches its schema, and the decoder accepts those of clients."""
    assert set(EXAMPLES) == {*client_messages(), *server_events()}
    for kind, example in EXAMPLES.items():
        message = json.loads(msgspec.json.encode(example))
        assert not list(validator(message["type"]).iter_errors(message))
        if kind in client_messages():
            assert decode(json.dumps(message), 8000) == example
    for server_event in server_events():
        check_event(json.loads(encode(EXAMPLES[server_event])))  # type: ignore[arg-type]


def test_a_frame_that_violates_the_contract_is_detected() -> None:
    """The check that other tests rely on can fail."""
    event = json.loads(msgspec.json.encode(EXAMPLES[server_events()[0]]))
    with pytest.raises(AssertionError):
        check_event({**event, "seq": "one"})
    with pytest.raises(AssertionError):
        check_event({key: value for key, value in event.items() if key != "seq"})
    with pytest.raises(AssertionError):
        check_event({"type": "unheard.of"})


def test_ids_are_strings_in_both_contracts() -> None:
    """Judged by the names of properties and parameters, anywhere in the documents."""
    id_name = re.compile(r"(^|_)id$|^(next_after|superseded_by|reply_to)$")
    parameters = {"id", "after", "memory", "record", "document", "session"}
    checked = []

    def check(node: object) -> None:
        if isinstance(node, dict):
            ids = {
                name: schema
                for name, schema in (node.get("properties") or {}).items()
                if id_name.search(name)
            }
            if node.get("in") in ("path", "query") and node["name"] in parameters:
                ids[node["name"]] = node["schema"]
            for name, schema in ids.items():
                if isinstance(schema, dict):
                    alternatives = [schema, *schema.get("anyOf", [])]
                    types = {option["type"] for option in alternatives if "type" in option}
                    assert types <= {"string", "null"}, (name, schema)
                    checked.append(name)
            for value in node.values():
                check(value)
        elif isinstance(node, list):
            for value in node:
                check(value)

    check(json.loads(json.dumps(openapi())))
    check(document())
    assert len(checked) > 50


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_the_committed_contracts_are_those_of_the_server(path: Path) -> None:
    """And what clients have of them; `make docs` writes them."""
    assert path.read_text("utf-8") == generated()[path]


def test_the_official_parser_accepts_the_socket_contract(
    node: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    """AsyncAPI's parser finds every message and no error."""
    path = tmp_path / "asyncapi.json"
    path.write_text(json.dumps(asyncapi()))
    result = node("validate.mjs", str(path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == f"{len(EXAMPLES)} messages\n"


async def test_every_route_is_described_and_nothing_else(start: StartServer) -> None:
    """The document lists exactly the running server's methods and paths, and is served itself."""
    server = await start()
    served = {
        (method, route.path)
        for route in server.app.asgi.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {(operation.method, operation.path) for operation in OPERATIONS}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        base = f"http://127.0.0.1:{server.port}/v1"
        assert (await http.get(f"{base}/openapi.json")).json() == json.loads(json.dumps(openapi()))
        assert (await http.get(f"{base}/asyncapi.json")).json() == document()


_MEASURED_OR_NUMBERED = {"seq", "timings", "ready_ms"}


@pytest.mark.parametrize("event", get_args(StreamEvent), ids=lambda event: event.__name__)
def test_an_event_of_a_stream_has_the_fields_that_it_has_on_the_socket(
    event: type[msgspec.Struct],
) -> None:
    """By the same names, but for its number and measured times."""
    (same,) = [
        on_socket
        for on_socket in server_events()
        if on_socket.__struct_config__.tag == event.__struct_config__.tag
    ]
    assert {*same.__struct_fields__} - _MEASURED_OR_NUMBERED <= {*event.__struct_fields__}
