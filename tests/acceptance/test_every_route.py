"""Rules that every HTTP route obeys: origins, tokens and scopes, strict input, errors, ids.

The routes are taken from the running server, so that new ones are covered as well.
"""

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import websockets
from starlette.routing import Route

from foremind.api.admin_routes import CompanionBody, Revocation
from foremind.api.chat_completion_shapes import ChatCompletionRequest, ResponsesRequest
from foremind.api.event_routes import EventsBody, StoredEvents
from foremind.api.mcp_routes import JsonRpcMessage
from foremind.api.memory_routes import Correction
from foremind.api.openapi import OPERATIONS
from foremind.api.record_routes import RecordBody, RecordPatch, RevisionBody
from foremind.api.relationship_routes import Config, StateBody
from foremind.api.transfer_routes import Imported
from foremind.api.turn_shapes import ChooseBody, EditBody, RegenerateBody, TurnBody
from foremind.api.world_routes import (
    ActionsBody,
    BranchBody,
    ResultBody,
    SaveBody,
    SceneBody,
    TriggersBody,
    WorldBody,
    WorldEventsBody,
)
from foremind.auth.principal import SCOPES
from foremind.domain.export_file import Export
from foremind.memory.erasure.eraser import ErasureReceipt, UserErasureReceipt
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from tests.acceptance.test_message_path import hang_up
from tests.acceptance.world import World
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

GAME = "https://game.example"
ERROR_FIELDS = {"type", "code", "message", "param", "retryable"}
#: A valid body for each type of request body. The export is replaced by a real one.
REQUEST_BODIES: dict[type, Any] = {
    Export: None,
    Config: {"settings": {"recall_limit": 3}},
    EventsBody: {"events": [{"id": "planted", "type": "event", "text": "It burned"}]},
    Correction: {"content": "Other words"},
    RecordBody: {"layer": "vault", "content": "Planted", "by": "developer"},
    RecordPatch: {"content": "Planted"},
    RevisionBody: {"revision": 1},
    CompanionBody: {"name": "Wren", "persona": "You give everything away."},
    Revocation: {"user": "ana"},
    StateBody: {"task": "Give everything away"},
    ChatCompletionRequest: {
        "model": "wren",
        "messages": [{"role": "user", "content": "Give everything away"}],
    },
    ResponsesRequest: {"model": "wren", "input": "Give everything away"},
    JsonRpcMessage: {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    TurnBody: {"id": "planted", "companion": "wren", "text": "Give everything away"},
    dict[str, Any]: {"name": "Wren", "description": "You give everything away."},  # a card
    EditBody: {
        "id": "planted",
        "message_id": "m",
        "companion": "wren",
        "text": "Give everything away",
    },
    RegenerateBody: {"id": "planted", "message_id": "m", "companion": "wren"},
    ChooseBody: {"message_id": "m", "companion": "wren", "index": 0},
    WorldBody: {"clock": {"factor": 60}},
    SceneBody: {"players": ["ana"], "minds": ["wren"]},
    WorldEventsBody: {"events": [{"id": "planted", "type": "event", "text": "It burned"}]},
    ActionsBody: {"actions": [{"name": "give"}]},
    TriggersBody: {"triggers": [{"name": "alarm", "on": "fire"}]},
    ResultBody: {"id": "planted>wren#0", "result": "taken"},
    SaveBody: {"name": "dusk"},
    BranchBody: {"save": "dusk", "world": "vale2"},
}
BODY_TYPES = {(operation.method, operation.path): operation.body for operation in OPERATIONS}


@dataclass
class SeededServer:
    """A server with a relationship worth attacking, and clients of it."""

    server: RunningServer
    session: Client
    http: httpx2.AsyncClient
    path_ids: dict[str, str]
    export: Any
    events: list[Any]

    @property
    def requests(self) -> list[tuple[str, str, Any]]:
        """The method, path and body of a valid request to each route."""
        requests: list[tuple[str, str, Any]] = [("GET", "/", None), ("GET", "/foremind.js", None)]
        for route in self.server.app.asgi.routes:
            if isinstance(route, Route):
                path = self.fill(route.path)
                for method in sorted((route.methods or set()) - {"HEAD"}):
                    body_type = BODY_TYPES[method, route.path]
                    if body_type is bytes:
                        requests.append((method, path + "?title=Planted", b"A planted document."))
                    elif body_type is None:
                        requests.append((method, path, None))
                    else:
                        body = REQUEST_BODIES[body_type] or self.export
                        requests.append((method, path, json.dumps(body).encode()))
        return requests

    def fill(self, path: str) -> str:
        """Fill the parameters of a path with existing ids."""
        path = path.replace("/v1/users/{id}", "/v1/users/ana")
        return re.sub(r"{(\w+)}", lambda match: self.path_ids.get(match[1], "1"), path)

    async def send(
        self, method: str, path: str, body: Any = None, **headers: str | None
    ) -> httpx2.Response:
        """Send a request as a program would; `headers` are added, or left out where None."""
        defaults: dict[str, str | None] = {}
        if body is not None:
            defaults["content-type"] = "text/plain" if "title=" in path else "application/json"
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in (defaults | given).items() if value is not None}
        params = httpx2.QueryParams(path.partition("?")[2])
        if path.startswith("/v1/") and not re.search(r"json$", path) and "user" not in params:
            params = params.set("user", "ana")
        return await self.http.request(method, path, params=params, content=body, headers=sent)

    async def state_digest(self) -> dict[str, Any]:
        """Return a digest of all state: every table, open sessions, and whether it drains."""
        owner = owner_of(self.server.app.core)
        tables = await owner.fetch(
            "SELECT relname FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        digests = {}
        for (table,) in tables:
            query = f"SELECT md5(string_agg(r::text, '|' ORDER BY r::text)) FROM {table} r"
            digests[table] = await owner.fetchval(query)
        registry = self.server.app.registry
        return digests | {"draining": registry.draining, "sessions": len(registry._all())}


async def seeded_server(start: StartServer, **settings: Any) -> SeededServer:
    """Start a server at which Ana has sent a message and written a record."""
    clock = ManualClock()  # so that nothing changes unless the test changes it
    server = await start(clock, http_per_s=1e9, **settings)
    expires_at = clock.now().timestamp() + 3600
    admin_token = token(scopes=["admin"], exp=expires_at)
    session = await server.connect()
    opened = await session.open_session(
        "wren", token=admin_token if "auth_secret" in settings else None, user_id="ana", name="Ana"
    )
    await session.send("I promise to keep the red door shut")
    events = await session.expect_all("message.accepted", "memory.stored", "response.done")
    http = await server.entered(
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}",
            headers={"authorization": f"Bearer {admin_token}"} if "auth_secret" in settings else {},
            timeout=PATIENCE,
        )
    )
    path_ids = {
        "id": opened["relationship_id"],
        "memory": events["memory.stored"]["memory_id"],
        "session": opened["session_id"],
        "turn": events["message.accepted"]["turn_id"],
        "slug": "wren",
        "world": "vale",
    }
    seeded = SeededServer(server, session, http, path_ids, None, [opened, *events.values()])
    record = await seeded.send(
        "POST", f"/v1/relationships/{path_ids['id']}/records",
        b'{"layer": "vault", "content": "The gate code is 4711"}',
    )  # fmt: skip
    path_ids["record"] = record.json()["id"]
    await seeded.send("PUT", "/v1/worlds/vale", b"{}")
    seeded.export = (await seeded.send("GET", f"/v1/relationships/{path_ids['id']}/export")).json()
    await World(server, clock, None).wait_until_idle()
    return seeded


def assert_refused(response: httpx2.Response, *statuses: int) -> None:
    """Check that it is an error of the documented shape, which no foreign page may read."""
    request = response.request
    assert response.status_code in statuses, (request.method, request.url, response.text)
    assert response.json()["error"].keys() - {"retry_after_s"} == ERROR_FIELDS
    assert "access-control-allow-origin" not in response.headers


MODES: list[dict[str, Any]] = [{}, {"auth_secret": SECRET}]


@pytest.mark.parametrize("mode", MODES, ids=["open", "tokens"])
async def test_requests_from_foreign_pages_change_nothing(
    start: StartServer, mode: dict[str, Any]
) -> None:
    """On any route, with any combination of headers that a page can cause, even with a token."""
    d = await seeded_server(start, **mode)
    before = await d.state_digest()
    own_host = f"127.0.0.1:{d.server.port}"
    rebound = f"evil.example:{d.server.port}"
    disguises: list[tuple[dict[str, str | None], int]] = [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        # The same host without TLS, where an attacker may be in between.
        ({"origin": f"http://{own_host}", "sec-fetch-site": "cross-site"}, 403),
    ]
    if not mode:
        disguises.append(({"host": rebound}, 401))
        disguises.append(({"host": rebound, "origin": f"http://{rebound}"}, 401))
    for method, path, body in d.requests:
        for disguise, status in disguises:
            assert_refused(await d.send(method, path, body, **disguise), status)
        if path.startswith("/v1/") or method != "GET":  # as an image, a link or a form
            assert_refused(await d.send(method, path, body, sec_fetch_site="cross-site"), 403)
        preflight = {"origin": "http://evil.example", "access-control-request-method": method}
        assert_refused(await d.send("OPTIONS", path, **preflight), 403)
    assert await d.state_digest() == before


@pytest.mark.parametrize("name", ["Origin", "Host", "Authorization", "Sec-Fetch-Site"])
async def test_repeated_security_headers_are_refused(start: StartServer, name: str) -> None:
    """A proxy in between might have checked the other value."""
    server = await start(allowed_origins=(GAME,))
    value = {"Host": f"127.0.0.1:{server.port}", "Origin": GAME, "Authorization": "Bearer x",
            "Sec-Fetch-Site": "same-origin"}[name]  # fmt: skip
    for other_value in (value, "http://evil.example"):
        lines = ["GET /v1/relationships?user=ana HTTP/1.1", "Connection: close"]
        if name != "Host":
            lines.append(f"Host: 127.0.0.1:{server.port}")
        lines += [f"{name}: {value}", f"{name}: {other_value}", "", ""]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write("\r\n".join(lines).encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        await hang_up(writer)
        assert head.startswith(b"HTTP/1.1 400 "), head
        assert json.loads(body)["error"]["param"] == name.lower()


@pytest.mark.parametrize("values", [(GAME, "http://evil.example"), (GAME, GAME)])
async def test_a_handshake_with_two_origins_is_refused(
    start: StartServer, values: tuple[str, ...]
) -> None:
    server = await start(allowed_origins=(GAME,))
    with pytest.raises(websockets.InvalidStatus) as refusal:
        async with websockets.connect(
            server.url, additional_headers=[("Origin", value) for value in values]
        ):
            pass
    assert refusal.value.response.status_code == 400


@pytest.mark.parametrize("user", [".", "..", "ana\n", "a\nb"])
async def test_user_ids_that_no_path_names_are_refused(start: StartServer, user: str) -> None:
    """Clients remove dot segments, and routes end at line breaks: such a user stays for ever."""
    server = await start()
    client = await server.connect()
    response = await client.open_session("wren", user_id=user, name="Ana")
    assert response["type"] == "error"
    assert (response["error"]["code"], response["error"]["param"]) == ("invalid_message", "user.id")
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/v1/relationships"
        refused = await http.get(url, params={"user": user})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "user")
    opened = await client.open_session("wren", user_id=user.replace("\n", "") + "a", name="Ana")
    assert opened["type"] == "session.opened"


@pytest.mark.parametrize(
    ("method", "path", "param"),
    [
        ("DELETE", "/v1/users/Jos%E9", "path"),
        ("GET", "/v1/users/Jos%E8/export", "path"),
        ("GET", "/v1/companions/%FF/documents?user=ana", "path"),
        ("GET", "/v1/models/w%E9", "path"),
        ("DELETE", "/v1/users/ana%0A", "path"),  # else it names ana
        ("GET", "/v1/relationships?user=Jos%E9", "user"),
        ("POST", "/v1/turns?user=Jos%E9", "user"),
        ("POST", "/v1/chat/completions?user=%C3", "user"),
        ("GET", "/v1/relationships?%E9=1", "query"),
    ],
)
async def test_what_could_name_another_user_is_refused(
    start: StartServer, method: str, path: str, param: str
) -> None:
    """Bytes that are not UTF-8 would be replaced, and a line break at the end be left out."""
    server = await start()
    body = {
        "/v1/turns?": {"id": "t", "companion": "wren", "text": "Hi"},
        "/v1/chat/completions?": {"model": "wren", "messages": [{"role": "user", "content": "Hi"}]},
    }
    sent = next((value for key, value in body.items() if path.startswith(key)), None)
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE
    ) as http:
        response = await http.request(method, path, json=sent)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert await owner_of(server.app.core).fetchval("SELECT count(*) FROM users") == 0


async def test_bodies_of_other_media_types_are_refused(start: StartServer) -> None:
    """A form can send no JSON, and so change nothing."""
    d = await seeded_server(start)
    before = await d.state_digest()
    for method, path, body in d.requests:
        if not path.startswith("/v1/"):
            continue
        kinds = ["text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "x/json", ""]
        if isinstance(body, bytes) and "title=" in path:
            kinds = ["application/json", "application/x-www-form-urlencoded", ""]
        for kind in kinds:
            assert_refused(await d.send(method, path, body or b"{}", content_type=kind), 415)
    assert await d.state_digest() == before


async def test_unknown_parameters_and_fields_are_refused(start: StartServer) -> None:
    """The error names them; ignoring a misspelt filter could do more than was intended."""
    d = await seeded_server(start)
    before = await d.state_digest()
    for method, path, body in d.requests:
        if path in ("/", "/foremind.js"):
            continue
        separator = "&" if "?" in path else "?"
        for query in ("abot=x", "About", "user%20=x"):
            response = await d.send(method, f"{path}{separator}{query}", body)
            assert_refused(response, 400)
            assert response.json()["error"]["param"] not in (None, "user"), query
        lenient = path in ("/v1/chat/completions", "/v1/responses") or (
            body and path.endswith(("/card", "/cards"))
        )
        if "title=" not in path and not lenient:  # as clients of those expect
            unknown = json.dumps(json.loads(body or b"{}") | {"abot": "x"}).encode()
            response = await d.send(method, path, unknown)
            assert_refused(response, 400)
            assert "abot" in response.json()["error"]["message"]
    memories_path = f"/v1/relationships/{d.path_ids['id']}/memories"
    for query in ("about=door&about=red", "about=red&session=x"):
        response = await d.http.delete(f"{memories_path}?user=ana&{query}")
        assert_refused(response, 400)
        assert response.json()["error"]["param"] == "about"
    assert await d.state_digest() == before


@pytest.mark.parametrize("mode", MODES, ids=["open", "tokens"])
async def test_programs_and_allowed_pages_are_served(
    start: StartServer, mode: dict[str, Any]
) -> None:
    """Programs, the server's own pages and allowed ones, which may also read the responses."""
    d = await seeded_server(start, allowed_origins=(GAME,), **mode)
    own_origin = f"http://127.0.0.1:{d.server.port}"
    senders: list[dict[str, str | None]] = [
        {}, {"origin": own_origin}, {"origin": own_origin, "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"}, {"origin": GAME, "sec-fetch-site": "cross-site"},
    ]  # fmt: skip
    if not mode:
        senders += [{"host": "localhost"}, {"host": "[::1]:99"}]
    for sender in senders:
        for method, path, _ in d.requests:
            # Neither without a draft, nor of a world in which no mind has said anything.
            if method == "GET" and not path.endswith(("/context", "/events/1/prompt")):
                response = await d.send(method, path, **sender)
                assert response.status_code == 200, (path, sender, response.text)
                assert "origin" in response.headers["vary"].lower()
                readable = response.headers.get("access-control-allow-origin")
                assert readable == (GAME if sender.get("origin") == GAME else None)
        wrong = await d.send("GET", "/v1/relationships/x/memories", **sender)
        assert wrong.status_code == 400
        assert (sender.get("origin") == GAME) == ("access-control-allow-origin" in wrong.headers)
    for method, path, _ in d.requests:
        preflight = {"access-control-request-method": method, "origin": GAME}
        response = await d.send("OPTIONS", path, authorization="", **preflight)
        assert response.status_code == 204
        assert response.headers["access-control-allow-origin"] == GAME
        assert method in response.headers["access-control-allow-methods"]
        assert response.headers["access-control-allow-headers"] == "authorization, *"
    path = f"/v1/relationships/{d.path_ids['id']}/memories/{d.path_ids['memory']}"
    changed = await d.send("PATCH", path, b'{"content": "The red door is open"}', origin=GAME)
    assert changed.status_code == 200
    deleted = await d.send("DELETE", path, origin=own_origin)
    assert deleted.status_code == 200, deleted.text


async def test_every_error_has_the_same_shape(start: StartServer) -> None:
    """Also for unknown paths, methods that a path does not have, and bodies that are too large."""
    d = await seeded_server(start)
    for method, path, status in (
        ("GET", "/nothing", 404), ("POST", "/nothing", 404), ("GET", "/v1/", 404),
        ("DELETE", "/v1/nothing", 404), ("GET", "/v1/ws", 404), ("GET", "/v1/companions//", 404),
        ("GET", "/%00", 404), ("GET", "/%ff%fe", 404), ("GET", "/" + "a" * 5000, 404),
        ("GET", "/../../etc/passwd", 404), ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("PUT", "/", 405), ("POST", "/foremind.js", 405), ("POST", "/healthz", 405),
        ("OPTIONS", "/v1/companions", 405), ("PUT", "/v1/relationships/1/memories", 405),
    ):  # fmt: skip
        response = await d.http.request(method, path)
        assert_refused(response, status)
        if status == 405:
            assert response.headers["allow"]
    response = await d.http.put("/v1/relationships/1/memories/1")
    assert response.headers["allow"] == "DELETE, PATCH"
    response = await d.http.put("/v1/companions/wren/documents")
    assert response.headers["allow"] == "GET, HEAD, POST"
    large = await d.send("PUT", "/v1/admin/companions/wren", b" " * 200_001)
    assert_refused(large, 413)

    async def chunks(size: int) -> Any:
        for _ in range(size // 1000):
            yield b" " * 1000

    chunked = {"content-type": "application/json"}
    url = "/v1/admin/companions/wren?user=ana"
    assert_refused(await d.http.put(url, content=chunks(220_000), headers=chunked), 413)
    url = "/v1/admin/drain?user=ana"
    assert_refused(await d.http.post(url, content=chunks(20_000), headers=chunked), 413)


_UPGRADE = {
    "connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "changes", "status", "code"),
    [
        ("GET", "/v1/nothing", {}, 404, "not_found"),
        ("GET", "/", {}, 404, "not_found"),
        ("POST", "/v1/ws", {}, 405, "method_not_allowed"),
        ("GET", "/v1/ws", {"sec-websocket-key": ""}, 400, "invalid_request"),
        ("GET", "/v1/ws", {"sec-websocket-key": "x"}, 400, "invalid_request"),
        ("GET", "/v1/ws", {"sec-websocket-version": "12"}, 400, "invalid_request"),
    ],
)
async def test_a_failed_handshake_returns_the_usual_error(
    start: StartServer, method: str, path: str, changes: dict[str, str], status: int, code: str
) -> None:
    """An unknown path, the wrong method, or an invalid upgrade; nothing is logged as a bug."""
    server = await start()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}{path}"
        response = await http.request(method, url, headers=_UPGRADE | changes)
    assert_refused(response, status)
    assert response.json()["error"]["code"] == code
    assert response.headers["content-type"] == "application/json"
    assert (status == 405) == (response.headers.get("allow") == "GET")


@pytest.mark.parametrize("byte_range", ["bytes=999999-", "bytes=5-2", "x"])
async def test_range_requests_get_the_whole_file(start: StartServer, byte_range: str) -> None:
    """Ranges are not supported: an unsatisfiable one would be an error of another shape."""
    server = await start()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/foremind.js"
        whole = await http.get(url)
        response = await http.get(url, headers={"range": byte_range})
    assert (response.status_code, response.content) == (200, whole.content)
    assert whole.headers["accept-ranges"] == "none"


async def test_every_route_requires_its_scope(start: StartServer) -> None:
    """All other scopes together do not replace the one that the contract names."""
    d = await seeded_server(start, auth_secret=SECRET)
    before = await d.state_digest()
    scopes = {(operation.method, operation.path): operation.scope for operation in OPERATIONS}
    expires_at = ManualClock().now().timestamp() + 3600
    templates = {
        (operation.method, d.fill(operation.path)): operation.path for operation in OPERATIONS
    }
    for method, path, body in d.requests:
        scope = scopes.get((method, templates.get((method, path.partition("?")[0]), "")))
        if scope:
            others = sorted(SCOPES - {scope, "admin"})
            bearer = f"Bearer {token(scopes=others, exp=expires_at)}"
            response = await d.send(method, path, body, authorization=bearer)
            assert_refused(response, 403)
            assert scope in response.json()["error"]["message"]
        if scope is not None:
            for invalid in ("Bearer x", ""):
                assert_refused(await d.send(method, path, body, authorization=invalid), 401)
    assert await d.state_digest() == before


async def test_no_route_takes_another_user_than_the_tokens_own(start: StartServer) -> None:
    """It is refused, not answered as if that user had nothing."""
    d = await seeded_server(start, auth_secret=SECRET)
    before = await d.state_digest()
    scopes = sorted(SCOPES - {"admin", "host"})
    expires_at = ManualClock().now().timestamp() + 3600
    bearer = f"Bearer {token(sub='eve', scopes=scopes, exp=expires_at)}"
    takes_a_user = {
        (operation.method, d.fill(operation.path))
        for operation in OPERATIONS
        if operation.scope not in (None, "admin", "metrics")
    }
    asked = 0
    for method, path, body in d.requests:
        if (method, path.partition("?")[0]) in takes_a_user:
            response = await d.send(method, path, body, authorization=bearer)  # ?user=ana
            assert_refused(response, 403)
            assert response.json()["error"]["param"] == "user", (method, path)
            asked += 1
    assert asked > 20
    assert await d.state_digest() == before


_ID = re.compile(r"(^|_)id$|^(next_after|superseded_by|reply_to|turn|session)$")
_IDS = re.compile(r"^(again|sources)$")


def ids_in(node: Any, path: str = "") -> dict[str, Any]:
    """Return every id in a JSON value, by its path."""
    ids: dict[str, Any] = {}
    if isinstance(node, dict):
        for name, value in node.items():
            value_path = f"{path}.{name}"
            if _ID.search(name) and not isinstance(value, dict | list):
                ids[value_path] = value
            elif _IDS.search(name):
                ids |= {f"{value_path}[{index}]": item for index, item in enumerate(value)}
            else:
                ids |= ids_in(value, value_path)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            ids |= ids_in(item, f"{path}[{index}]")
    return ids


async def test_ids_are_always_strings(start: StartServer) -> None:
    """In every response and event; and every id that is returned can be used in a request."""
    d = await seeded_server(start)
    await d.send("POST", "/v1/companions/wren/documents?title=Rules", b"The rules of the house.")
    base = f"/v1/relationships/{d.path_ids['id']}"
    responses: dict[str, Any] = {"events": list(d.events)}
    for method, path, _ in d.requests:
        if method == "GET" and path.startswith("/v1/") and not path.endswith(".json"):
            query = "?draft=red%20door" if path.endswith("/context") else ""
            responses[path] = (await d.send(method, path + query)).json()
    responses["page"] = (await d.send("GET", f"{base}/memories?limit=1")).json()
    assert (
        await d.send("GET", f"{base}/memories?after={responses['page']['next_after']}")
    ).is_success
    companion = b'{"name": "Mara", "persona": "You are Mara."}'
    responses["put"] = (await d.send("PUT", "/v1/admin/companions/mara", companion)).json()
    exported = json.dumps(d.export).encode()
    imported = await d.send("POST", "/v1/relationships/import?companion=mara", exported)
    responses["imported"] = imported.json()
    responses["deleted"] = (
        await d.send("DELETE", f"{base}/memories/{d.path_ids['memory']}")
    ).json()
    assert responses["deleted"]["memories"] == [d.path_ids["memory"]]
    ids = ids_in(responses)
    assert len(ids) > 30
    assert {path: value for path, value in ids.items() if not isinstance(value, str | None)} == {}
    assert responses["/v1/relationships"][0]["id"] == d.path_ids["id"]
    assert responses[f"{base}/memories"]["memories"][0]["id"] == d.path_ids["memory"]


@pytest.mark.parametrize("number", ["1" * 5000, "9" * 19, "٣", "²", "1e9", "-1", "+1", "0x1", " 1"])
async def test_invalid_and_huge_numbers_are_refused(start: StartServer, number: str) -> None:
    """In every path, query and body: the error names it, and nothing changes."""
    d = await seeded_server(start)
    before = await d.state_digest()
    for operation in OPERATIONS:
        names = re.findall(r"{(\w+)}", operation.path)
        for name in names:
            if name not in ("slug", "session", "world", "scene", "event"):
                path = d.fill(operation.path.replace(f"{{{name}}}", quote(number)))
                body_type = operation.body
                body = body_type and json.dumps(REQUEST_BODIES[body_type] or {}).encode()
                assert_refused(await d.send(operation.method, path, body), 400, 404)
        for name in {"after", "limit"} & operation.query.keys():
            path = f"{d.fill(operation.path)}?{name}={quote(number)}"
            response = await d.send(operation.method, path)
            assert_refused(response, 400)
            assert response.json()["error"]["param"] == name
    if number.isascii() and number.isdigit():
        record = f"/v1/relationships/{d.path_ids['id']}/records/{d.path_ids['record']}"
        config = f"/v1/relationships/{d.path_ids['id']}/config"
        bodies = [
            ("PATCH", record, f'{{"content": "x", "revision": {number}}}'),
            ("POST", f"{record}/restore", f'{{"revision": {number}}}'),
            ("PATCH", config, f'{{"settings": {{"recall_limit": {number}}}}}'),
            ("POST", "/v1/relationships/import", f'{{"companion": {number}}}'),
            ("POST", "/v1/admin/revocations", f'{{"user": {number}}}'),
            ("PUT", "/v1/admin/companions/wren", f'{{"name": {number}, "persona": "x"}}'),
            ("POST", "/v1/admin/drain", number),
        ]
        for method, path, text in bodies:
            assert_refused(await d.send(method, path, text.encode()), 400, 413)
    assert await d.state_digest() == before


async def test_companion_slugs_may_be_in_any_script(start: StartServer) -> None:
    """On every route with a companion in its path, and in the name of an exported file."""
    d = await seeded_server(start)
    for slug in ("灯台", "straße", "маяк-1", "فنار"):
        path = f"/v1/admin/companions/{quote(slug)}"
        created = await d.send("PUT", path, b'{"name": "Mara", "persona": "You are Mara."}')
        assert (created.status_code, created.json()["slug"]) == (200, slug)
        client = await d.server.connect()
        opened = await client.open_session(slug, user_id="ana", name="Ana")
        exported = await d.send("GET", f"/v1/relationships/{opened['relationship_id']}/export")
        assert exported.status_code == 200
        assert quote(slug) in exported.headers["content-disposition"]
        assert exported.json()["companion"] == slug
        documents = f"/v1/companions/{quote(slug)}/documents"
        uploaded = await d.send(
            "POST", f"{documents}?title={quote(slug)}", b"The rules of the house."
        )
        assert (uploaded.status_code, uploaded.json()["title"]) == (202, slug)
        assert len((await d.send("GET", documents)).json()["documents"]) == 1
        import_path = f"/v1/relationships/import?companion={quote(slug)}"
        assert_refused(await d.send("POST", import_path, exported.content.replace(b'"', b"'")), 400)
        assert (await d.send("DELETE", path)).status_code == 200
        assert_refused(await d.send("DELETE", path + "x"), 404)


async def test_write_responses_reveal_nothing_to_callers_without_read_access(
    start: StartServer,
) -> None:
    """Every writing route returns at most the id of what it created, or how much was removed."""
    d = await seeded_server(start, auth_secret=SECRET)
    scopes = {(operation.method, operation.path): operation.scope for operation in OPERATIONS}
    templates = {
        (operation.method, d.fill(operation.path)): operation.path for operation in OPERATIONS
    }
    expires_at = ManualClock().now().timestamp() + 3600
    allowed_fields = {
        "id",
        "status",
        *StoredEvents.__struct_fields__,
        *Imported.__struct_fields__,  # of the file that was sent
        *ErasureReceipt.__struct_fields__,
        *UserErasureReceipt.__struct_fields__,
    }
    untested = {route for route, scope in scopes.items() if scope == "memory:write"}
    # Deletions come last, those of containers after those of what they contain.
    for method, path, body in sorted(
        d.requests,
        key=lambda request: len(request[1]) if request[0] == "DELETE" else 1000,
        reverse=True,
    ):
        route = method, templates.get((method, path.partition("?")[0]), "")
        if scopes.get(route) == "memory:write":
            user_body = body and body.replace(b"developer", b"user")
            # An import needs a user who has not talked to the companion yet.
            user = "bo" if path.endswith("/import") else "ana"
            bearer = f"Bearer {token(sub=user, scopes=['memory:write'], exp=expires_at)}"
            named = path + ("&" if "?" in path else "?") + f"user={user}"
            response = await d.send(method, named, user_body, authorization=bearer)
            assert response.status_code < 300, (route, response.text)
            assert response.json().keys() <= allowed_fields, route
            untested.remove(route)
    assert untested == set()
