"""The contracts describe what is really sent: examples, routes, the official parser, fuzzing."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import httpx2
import msgspec
import pytest
from starlette.routing import Route

from foremind.api.openapi import OPERATIONS, openapi
from foremind.gateway.protocol.asyncapi import asyncapi, client_messages, server_events
from foremind.gateway.protocol.decoding import decode
from foremind.gateway.protocol.examples import EXAMPLES
from foremind.gateway.protocol.messages import encode
from foremind.runtime.assets import asset
from tests.conftest import PATIENCE, StartServer
from tests.contract.check import check_event, document, validator

HERE = Path(__file__).parent


def test_every_message_is_shown_by_an_example_that_fits() -> None:
    """None is missing; each is what its schema says and what the decoder takes."""
    assert set(EXAMPLES) == {*client_messages(), *server_events()}
    for kind, example in EXAMPLES.items():
        written = json.loads(msgspec.json.encode(example))
        assert not list(validator(written["type"]).iter_errors(written))
        if kind in client_messages():
            assert decode(json.dumps(written), 8000) == example
    for server_event in server_events():
        check_event(json.loads(encode(EXAMPLES[server_event])))  # type: ignore[arg-type]


def test_a_frame_that_does_not_fit_is_noticed() -> None:
    """The check that every other test relies on can fail."""
    done = json.loads(msgspec.json.encode(EXAMPLES[server_events()[0]]))
    with pytest.raises(AssertionError):
        check_event({**done, "seq": "one"})
    with pytest.raises(AssertionError):
        check_event({key: value for key, value in done.items() if key != "seq"})
    with pytest.raises(AssertionError):
        check_event({"type": "unheard.of"})


def test_ids_are_text_in_both_contracts() -> None:
    """By the names of properties and parameters, wherever they stand."""
    named = re.compile(r"(^|_)id$|^(next_after|superseded_by|reply_to)$")
    parameters = {"id", "after", "memory", "record", "document", "session"}
    seen = []

    def check(part: object) -> None:
        if isinstance(part, dict):
            described = {
                each: schema
                for each, schema in (part.get("properties") or {}).items()
                if named.search(each)
            }
            if part.get("in") in ("path", "query") and part["name"] in parameters:
                described[part["name"]] = part["schema"]
            for each, schema in described.items():
                if isinstance(schema, dict):
                    kinds = [schema, *schema.get("anyOf", [])]
                    kinds = [kind.get("type") for kind in kinds if "type" in kind]
                    assert set(kinds) <= {"string", "null"}, (each, schema)
                    seen.append(each)
            for value in part.values():
                check(value)
        elif isinstance(part, list):
            for value in part:
                check(value)

    check(json.loads(json.dumps(openapi())))
    check(document())
    assert len(seen) > 50


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CompletedProcess[str]]:
    """Runs a script of the locked npm packages."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("node and npm are not installed; CI installs them")
    folder = tmp_path_factory.mktemp("npm")
    for each in ("package.json", "package-lock.json", ".npmrc", "validate.mjs"):
        shutil.copy(HERE / each, folder)
    subprocess.run([npm, "ci"], cwd=folder, check=True, capture_output=True, timeout=300)

    def ran(*command: str) -> CompletedProcess[str]:
        return subprocess.run(
            ["node", *command], cwd=folder, capture_output=True, text=True, check=False, timeout=100
        )

    return ran


def test_the_official_parser_takes_the_socket_contract(
    node: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    """AsyncAPI's own, from the npm registry, finds every message and no error."""
    path = tmp_path / "asyncapi.json"
    path.write_text(json.dumps(asyncapi()))
    said = node("validate.mjs", str(path))
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout == f"{len(EXAMPLES)} messages\n"


def test_the_types_of_the_browser_client_hold(
    node: Callable[..., CompletedProcess[str]],
) -> None:
    """TypeScript, at its strictest, reads them from the comments."""
    said = node(
        "node_modules/typescript/bin/tsc", "--noEmit", "--allowJs", "--checkJs", "--strict",
        "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom",
        str(asset("client_demo") / "foremind.js"),
    )  # fmt: skip
    assert said.returncode == 0, said.stdout


async def test_every_route_is_described_and_nothing_else(start: StartServer) -> None:
    """Methods and paths of the running server are those of the document, which it serves."""
    server = await start()
    served = {
        (method, route.path)
        for route in server.app.asgi.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {(each.method, each.path) for each in OPERATIONS}
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        base = f"http://127.0.0.1:{server.port}/v1"
        assert (await http.get(f"{base}/openapi.json")).json() == json.loads(json.dumps(openapi()))
        assert (await http.get(f"{base}/asyncapi.json")).json() == document()
