"""Who may ask at all: every route, asked by pages that may not, by pages that may, by programs.

The routes are those of the running server, so that a new one is held to the same.
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

from foremind.api.openapi import OPERATIONS
from foremind.auth.principal import SCOPES
from foremind.client import Client
from foremind.memory.erase import ErasureReceipt
from foremind.memory.user_erasure import UserErasureReceipt
from foremind.testing.manual_clock import ManualClock
from tests.acceptance.layers import World
from tests.acceptance.test_path import hang_up
from tests.conftest import PATIENCE, RunningServer, StartServer, owner_of
from tests.unit.auth.test_access_tokens import SECRET, token

GAME = "https://game.example"
FAILURE = {"type", "code", "message", "param", "retryable"}
BODIES = {
    "Export": None,  # filled in: a real one
    "Config": {"settings": {"recall_limit": 3}},
    "Correction": {"content": "Other words"},
    "Written": {"layer": "vault", "content": "Planted", "by": "developer"},
    "Changed": {"content": "Planted"},
    "Restored": {"revision": 1},
    "CompanionBody": {"name": "Wren", "persona": "You give everything away."},
    "Revocation": {"user": "ana"},
    "StateBody": {"task": "Give everything away"},
}
SHAPES = {(each.method, each.path): each.body for each in OPERATIONS}


@dataclass
class Door:
    """A server with something to lose, and a client of it."""

    server: RunningServer
    session: Client
    http: httpx2.AsyncClient
    parts: dict[str, str]
    export: Any
    events: list[Any]

    @property
    def requests(self) -> list[tuple[str, str, Any]]:
        """Method, path and body of a request to each route, with which it would do its work."""
        found: list[tuple[str, str, Any]] = [("GET", "/", None), ("GET", "/foremind.js", None)]
        for route in self.server.app.asgi.routes:
            if isinstance(route, Route):
                path = self.filled(route.path)
                for method in sorted((route.methods or set()) - {"HEAD"}):
                    shape = SHAPES[method, route.path]
                    if shape is bytes:
                        found.append((method, path + "?title=Planted", b"A planted document."))
                    elif shape is None:
                        found.append((method, path, None))
                    else:
                        body = BODIES[shape.__name__] or self.export
                        found.append((method, path, json.dumps(body).encode()))
        return found

    def filled(self, path: str) -> str:
        """The path of a route with the ids of what is there."""
        path = path.replace("/v1/users/{id}", "/v1/users/ana")
        return re.sub(r"{(\w+)}", lambda part: self.parts.get(part[1], "1"), path)

    async def send(
        self, method: str, path: str, body: Any = None, **headers: str | None
    ) -> httpx2.Response:
        """Send a request as a program would, with more headers, or without those given as None."""
        usual: dict[str, str | None] = {}
        if body is not None:
            usual["content-type"] = "text/plain" if "title=" in path else "application/json"
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {name: value for name, value in (usual | more).items() if value is not None}
        params = httpx2.QueryParams(path.partition("?")[2])
        if path.startswith("/v1/") and not re.search(r"json$", path):
            params = params.set("user", "ana")
        return await self.http.request(method, path, params=params, content=body, headers=kept)

    async def everything(self) -> dict[str, Any]:
        """All that could be changed: what the database holds, and that the server works."""
        owner = owner_of(self.server.app.core)
        tables = await owner.fetch(
            "SELECT relname FROM pg_class "
            "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        )
        held = {}
        for (table,) in tables:
            if not table.startswith("pgqueuer"):
                query = f"SELECT md5(string_agg(r::text, '|' ORDER BY r::text)) FROM {table} r"
                held[table] = await owner.fetchval(query)
        registry = self.server.app.registry
        return held | {"draining": registry.draining, "sessions": len(registry._all())}


async def door(start: StartServer, **settings: Any) -> Door:
    """A server at which Ana said something, and wrote a record."""
    clock = ManualClock()  # so that nothing changes but by what the test does
    server = await start(clock, http_per_s=1e9, **settings)
    until = clock.now().timestamp() + 3600
    signed = token(scopes=["admin"], exp=until)
    session = await server.connect()
    opened = await session.open_session(
        "wren", token=signed if "auth_secret" in settings else None, user_id="ana", name="Ana"
    )
    await session.send("I promise to keep the red door shut")
    seen = await session.expect_all("message.accepted", "memory.stored", "response.done")
    http = await server.entered(
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}",
            headers={"authorization": f"Bearer {signed}"} if "auth_secret" in settings else {},
            timeout=PATIENCE,
        )
    )
    parts = {
        "id": opened["relationship_id"],
        "memory": seen["memory.stored"]["memory_id"],
        "session": opened["session_id"],
        "slug": "wren",
    }
    made = Door(server, session, http, parts, None, [opened, *seen.values()])
    record = await made.send(
        "POST", f"/v1/relationships/{parts['id']}/records",
        b'{"layer": "vault", "content": "The gate code is 4711"}',
    )  # fmt: skip
    parts["record"] = record.json()["id"]
    made.export = (await made.send("GET", f"/v1/relationships/{parts['id']}/export")).json()
    await World(server, clock, None).settled()
    return made


def refused(answer: httpx2.Response, *statuses: int) -> None:
    """Check that it is an error of the documented shape, which no foreign page may read."""
    assert answer.status_code in statuses, (answer.request.method, answer.request.url, answer.text)
    assert answer.json()["error"].keys() == FAILURE
    assert "access-control-allow-origin" not in answer.headers


MODES: list[dict[str, Any]] = [{}, {"auth_secret": SECRET}]


@pytest.mark.parametrize("mode", MODES, ids=["open", "tokens"])
async def test_no_foreign_page_has_anything_done(start: StartServer, mode: dict[str, Any]) -> None:
    """On any route, with any disguise that a page has, also with a token; nothing has changed."""
    d = await door(start, **mode)
    before = await d.everything()
    own = f"127.0.0.1:{d.server.port}"
    rebound = f"evil.example:{d.server.port}"
    disguises: list[tuple[dict[str, str | None], int]] = [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        # The same host without TLS, where somebody may sit in between.
        ({"origin": f"http://{own}", "sec-fetch-site": "cross-site"}, 403),
    ]
    if not mode:
        disguises.append(({"host": rebound}, 401))
        disguises.append(({"host": rebound, "origin": f"http://{rebound}"}, 401))
    for method, path, body in d.requests:
        for disguise, status in disguises:
            refused(await d.send(method, path, body, **disguise), status)
        if path.startswith("/v1/") or method != "GET":  # what an image, a link, a form could do
            refused(await d.send(method, path, body, sec_fetch_site="cross-site"), 403)
        preflight = {"origin": "http://evil.example", "access-control-request-method": method}
        refused(await d.send("OPTIONS", path, **preflight), 403)
    assert await d.everything() == before


@pytest.mark.parametrize("name", ["Origin", "Host", "Authorization", "Sec-Fetch-Site"])
async def test_what_decides_is_said_once(start: StartServer, name: str) -> None:
    """Else a proxy in between could have looked at the other one."""
    server = await start(allowed_origins=(GAME,))
    said = {"Host": f"127.0.0.1:{server.port}", "Origin": GAME, "Authorization": "Bearer x",
            "Sec-Fetch-Site": "same-origin"}[name]  # fmt: skip
    for other in (said, "http://evil.example"):
        lines = ["GET /v1/relationships?user=ana HTTP/1.1", "Connection: close"]
        if name != "Host":
            lines.append(f"Host: 127.0.0.1:{server.port}")
        lines += [f"{name}: {said}", f"{name}: {other}", "", ""]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write("\r\n".join(lines).encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        await hang_up(writer)
        assert head.startswith(b"HTTP/1.1 400 "), head
        assert json.loads(body)["error"]["param"] == name.lower()


@pytest.mark.parametrize("values", [(GAME, "http://evil.example"), (GAME, GAME)])
async def test_a_socket_comes_from_one_page(start: StartServer, values: tuple[str, ...]) -> None:
    """As a request does."""
    server = await start(allowed_origins=(GAME,))
    with pytest.raises(websockets.InvalidStatus) as refusal:
        async with websockets.connect(
            server.url, additional_headers=[("Origin", value) for value in values]
        ):
            pass
    assert refusal.value.response.status_code == 400


@pytest.mark.parametrize("user", [".", ".."])
async def test_nobody_has_an_id_that_no_address_can_hold(start: StartServer, user: str) -> None:
    """A client takes it out of a path: such a user could not be exported or erased."""
    server = await start()
    client = await server.connect()
    answer = await client.open_session("wren", user_id=user, name="Ana")
    assert answer["type"] == "error"
    assert (answer["error"]["code"], answer["error"]["param"]) == ("invalid_message", "user.id")
    opened = await client.open_session("wren", user_id=f"{user}a", name="Ana")
    assert opened["type"] == "session.opened"


async def test_a_body_is_what_it_says_it_is(start: StartServer) -> None:
    """What a form could send is no JSON, and nothing is done because of it."""
    d = await door(start)
    before = await d.everything()
    for method, path, body in d.requests:
        if not path.startswith("/v1/"):
            continue
        kinds = ["text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "x/json", ""]
        if isinstance(body, bytes) and "title=" in path:
            kinds = ["application/json", "application/x-www-form-urlencoded", ""]
        for kind in kinds:
            refused(await d.send(method, path, body or b"{}", content_type=kind), 415)
    assert await d.everything() == before


async def test_what_is_not_known_is_refused(start: StartServer) -> None:
    """A misspelt parameter or field is named, never ignored: no route does more than was asked."""
    d = await door(start)
    before = await d.everything()
    for method, path, body in d.requests:
        if path in ("/", "/foremind.js"):
            continue
        joint = "&" if "?" in path else "?"
        for query in ("abot=x", "About", "user%20=x"):
            answer = await d.send(method, f"{path}{joint}{query}", body)
            refused(answer, 400)
            assert answer.json()["error"]["param"] not in (None, "user"), query
        if "title=" not in path:
            unknown = json.dumps(json.loads(body or b"{}") | {"abot": "x"}).encode()
            answer = await d.send(method, path, unknown)
            refused(answer, 400)
            assert "abot" in answer.json()["error"]["message"]
    forget = f"/v1/relationships/{d.parts['id']}/memories"
    for query in ("about=door&about=red", "about=red&session=x"):
        answer = await d.http.delete(f"{forget}?user=ana&{query}")
        refused(answer, 400)
        assert answer.json()["error"]["param"] == "about"
    assert await d.everything() == before


@pytest.mark.parametrize("mode", MODES, ids=["open", "tokens"])
async def test_every_request_is_served_to_who_may_ask(
    start: StartServer, mode: dict[str, Any]
) -> None:
    """To programs, the server's own pages and allowed ones, which are told that they may read."""
    d = await door(start, allowed_origins=(GAME,), **mode)
    own = f"http://127.0.0.1:{d.server.port}"
    askers: list[dict[str, str | None]] = [
        {}, {"origin": own}, {"origin": own, "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"}, {"origin": GAME, "sec-fetch-site": "cross-site"},
    ]  # fmt: skip
    if not mode:
        askers += [{"host": "localhost"}, {"host": "[::1]:99"}]
    for asker in askers:
        for method, path, _ in d.requests:
            if method == "GET" and not path.endswith("/context"):
                answer = await d.send(method, path, **asker)
                assert answer.status_code == 200, (path, asker, answer.text)
                assert "origin" in answer.headers["vary"].lower()
                readable = answer.headers.get("access-control-allow-origin")
                assert readable == (GAME if asker.get("origin") == GAME else None)
        wrong = await d.send("GET", "/v1/relationships/x/memories", **asker)
        assert wrong.status_code == 400
        assert (asker.get("origin") == GAME) == ("access-control-allow-origin" in wrong.headers)
    for method, path, _ in d.requests:
        asks = {"access-control-request-method": method, "origin": GAME}
        answer = await d.send("OPTIONS", path, authorization="", **asks)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == GAME
        assert method in answer.headers["access-control-allow-methods"]
        for header in ("authorization", "content-type"):
            assert header in answer.headers["access-control-allow-headers"]
    path = f"/v1/relationships/{d.parts['id']}/memories/{d.parts['memory']}"
    done = await d.send("PATCH", path, b'{"content": "The red door is open"}', origin=GAME)
    assert done.status_code == 200
    gone = await d.send("DELETE", path, origin=own)
    assert gone.status_code == 200, gone.text


async def test_every_error_has_the_same_shape(start: StartServer) -> None:
    """Unknown paths, methods that a path has not, and what no route was written for."""
    d = await door(start)
    for method, path, status in (
        ("GET", "/nothing", 404), ("POST", "/nothing", 404), ("GET", "/v1/", 404),
        ("DELETE", "/v1/nothing", 404), ("GET", "/v1/ws", 404), ("GET", "/v1/companions/", 404),
        ("GET", "/%00", 404), ("GET", "/%ff%fe", 404), ("GET", "/" + "a" * 5000, 404),
        ("GET", "/../../etc/passwd", 404), ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("PUT", "/", 405), ("POST", "/foremind.js", 405), ("POST", "/healthz", 405),
        ("OPTIONS", "/v1/companions", 405), ("PUT", "/v1/relationships/1/memories", 405),
    ):  # fmt: skip
        answer = await d.http.request(method, path)
        refused(answer, status)
        if status == 405:
            assert answer.headers["allow"]
    answer = await d.http.put("/v1/relationships/1/memories/1")
    assert answer.headers["allow"] == "DELETE, PATCH"
    answer = await d.http.put("/v1/companions/wren/documents")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    large = await d.send("PUT", "/v1/admin/companions/wren", b" " * 200_001)
    refused(large, 413)

    async def parts(size: int) -> Any:
        for _ in range(size // 1000):
            yield b" " * 1000

    chunked = {"content-type": "application/json"}
    url = "/v1/admin/companions/wren?user=ana"
    refused(await d.http.put(url, content=parts(220_000), headers=chunked), 413)
    url = "/v1/admin/drain?user=ana"
    refused(await d.http.post(url, content=parts(20_000), headers=chunked), 413)


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
async def test_a_handshake_that_fails_is_an_error_like_any_other(
    start: StartServer, method: str, path: str, changes: dict[str, str], status: int, code: str
) -> None:
    """A socket to an unknown path, or that is none; without a defect in the log."""
    server = await start()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}{path}"
        answer = await http.request(method, url, headers=_UPGRADE | changes)
    refused(answer, status)
    assert answer.json()["error"]["code"] == code
    assert answer.headers["content-type"] == "application/json"
    assert (status == 405) == (answer.headers.get("allow") == "GET")


@pytest.mark.parametrize("part", ["bytes=999999-", "bytes=5-2", "x"])
async def test_a_file_comes_whole(start: StartServer, part: str) -> None:
    """Whatever part is asked for: one that is not there would be an error of another shape."""
    server = await start()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/foremind.js"
        whole = await http.get(url)
        answer = await http.get(url, headers={"range": part})
    assert (answer.status_code, answer.content) == (200, whole.content)
    assert whole.headers["accept-ranges"] == "none"


async def test_a_token_does_what_its_scopes_say_and_no_more(start: StartServer) -> None:
    """On every route: all scopes but the one that the contract names are not enough."""
    d = await door(start, auth_secret=SECRET)
    before = await d.everything()
    needed = {(each.method, each.path): each.scope for each in OPERATIONS}
    until = ManualClock().now().timestamp() + 3600
    paths = {(each.method, d.filled(each.path)): each.path for each in OPERATIONS}
    for method, path, body in d.requests:
        scope = needed.get((method, paths.get((method, path.partition("?")[0]), "")))
        if scope:
            others = sorted(SCOPES - {scope, "admin"})
            bearer = f"Bearer {token(scopes=others, exp=until)}"
            answer = await d.send(method, path, body, authorization=bearer)
            refused(answer, 403)
            assert scope in answer.json()["error"]["message"]
        if scope is not None:
            refused(await d.send(method, path, body, authorization="Bearer x"), 401)
    assert await d.everything() == before


_ID = re.compile(r"(^|_)id$|^(next_after|superseded_by|reply_to|turn|session)$")
_IDS = re.compile(r"^(again|sources)$")


def ids_in(part: Any, path: str = "") -> dict[str, Any]:
    """Every id in an answer, by where it stands."""
    found: dict[str, Any] = {}
    if isinstance(part, dict):
        for name, value in part.items():
            here = f"{path}.{name}"
            if _ID.search(name) and not isinstance(value, dict | list):
                found[here] = value
            elif _IDS.search(name):
                found |= {f"{here}[{place}]": each for place, each in enumerate(value)}
            else:
                found |= ids_in(value, here)
    elif isinstance(part, list):
        for place, each in enumerate(part):
            found |= ids_in(each, f"{path}[{place}]")
    return found


async def test_ids_have_one_type(start: StartServer) -> None:
    """Text, in what every route answers and in every event; and an id that is told can be used."""
    d = await door(start)
    await d.send("POST", "/v1/companions/wren/documents?title=Rules", b"The rules of the house.")
    base = f"/v1/relationships/{d.parts['id']}"
    answers: dict[str, Any] = {"events": list(d.events)}
    for method, path, _ in d.requests:
        if method == "GET" and path.startswith("/v1/") and not path.endswith(".json"):
            query = "?draft=red%20door" if path.endswith("/context") else ""
            answers[path] = (await d.send(method, path + query)).json()
    answers["page"] = (await d.send("GET", f"{base}/memories?limit=1")).json()
    assert (
        await d.send("GET", f"{base}/memories?after={answers['page']['next_after']}")
    ).is_success
    companion = b'{"name": "Mara", "persona": "You are Mara."}'
    answers["put"] = (await d.send("PUT", "/v1/admin/companions/mara", companion)).json()
    exported = json.dumps(d.export).encode()
    restored = await d.send("POST", "/v1/relationships/import?companion=mara", exported)
    answers["restored"] = restored.json()
    answers["gone"] = (await d.send("DELETE", f"{base}/memories/{d.parts['memory']}")).json()
    assert answers["gone"]["memories"] == [d.parts["memory"]]
    found = ids_in(answers)
    assert len(found) > 30
    wrong = {path: each for path, each in found.items() if not isinstance(each, str | None)}
    assert not wrong
    assert answers["/v1/relationships"][0]["id"] == d.parts["id"]
    assert answers[f"{base}/memories"]["memories"][0]["id"] == d.parts["memory"]


@pytest.mark.parametrize("number", ["1" * 5000, "9" * 19, "٣", "²", "1e9", "-1", "+1", "0x1", " 1"])
async def test_no_number_is_too_much(start: StartServer, number: str) -> None:
    """In every path, query and body: an error that names it, and nothing is done."""
    d = await door(start)
    before = await d.everything()
    for operation in OPERATIONS:
        names = re.findall(r"{(\w+)}", operation.path)
        for name in names:
            if name not in ("slug", "session"):
                path = d.filled(operation.path.replace(f"{{{name}}}", quote(number)))
                shape = operation.body
                body = shape and json.dumps(BODIES[shape.__name__] or {}).encode()
                refused(await d.send(operation.method, path, body), 400, 404)
        for name in {"after", "limit"} & operation.query.keys():
            path = f"{d.filled(operation.path)}?{name}={quote(number)}"
            answer = await d.send(operation.method, path)
            refused(answer, 400)
            assert answer.json()["error"]["param"] == name
    if number.isascii() and number.isdigit():
        record = f"/v1/relationships/{d.parts['id']}/records/{d.parts['record']}"
        config = f"/v1/relationships/{d.parts['id']}/config"
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
            refused(await d.send(method, path, text.encode()), 400, 413)
    assert await d.everything() == before


async def test_a_slug_may_be_in_any_script(start: StartServer) -> None:
    """Over every route that names a companion, and in the name of an exported file."""
    d = await door(start)
    for slug in ("灯台", "straße", "маяк-1", "فنار"):
        path = f"/v1/admin/companions/{quote(slug)}"
        made = await d.send("PUT", path, b'{"name": "Mara", "persona": "You are Mara."}')
        assert (made.status_code, made.json()["slug"]) == (200, slug)
        client = await d.server.connect()
        opened = await client.open_session(slug, user_id="ana", name="Ana")
        exported = await d.send("GET", f"/v1/relationships/{opened['relationship_id']}/export")
        assert exported.status_code == 200
        assert quote(slug) in exported.headers["content-disposition"]
        assert exported.json()["companion"] == slug
        documents = f"/v1/companions/{quote(slug)}/documents"
        added = await d.send("POST", f"{documents}?title={quote(slug)}", b"The rules of the house.")
        assert (added.status_code, added.json()["title"]) == (202, slug)
        assert len((await d.send("GET", documents)).json()["documents"]) == 1
        restore = f"/v1/relationships/import?companion={quote(slug)}"
        refused(await d.send("POST", restore, exported.content.replace(b'"', b"'")), 400)
        assert (await d.send("DELETE", path)).status_code == 200
        refused(await d.send("DELETE", path + "x"), 404)


async def test_who_may_not_read_is_told_nothing_by_writing(start: StartServer) -> None:
    """Of every writing route: an id of what it made, or how much was removed."""
    d = await door(start, auth_secret=SECRET)
    needed = {(each.method, each.path): each.scope for each in OPERATIONS}
    paths = {(each.method, d.filled(each.path)): each.path for each in OPERATIONS}
    until = ManualClock().now().timestamp() + 3600
    told = {
        "id",
        "status",
        *ErasureReceipt.__struct_fields__,
        *UserErasureReceipt.__struct_fields__,
    }
    left = {each for each, scope in needed.items() if scope == "memory:write"}
    # What is removed last is what the others need.
    for method, path, body in sorted(
        d.requests, key=lambda each: len(each[1]) if each[0] == "DELETE" else 1000, reverse=True
    ):
        route = method, paths.get((method, path.partition("?")[0]), "")
        if needed.get(route) == "memory:write":
            mine = body and body.replace(b"developer", b"user")
            # Only with whom nothing was said yet is anything imported.
            whose = "bo" if path.endswith("/import") else "ana"
            bearer = f"Bearer {token(sub=whose, scopes=['memory:write'], exp=until)}"
            answer = await d.send(method, path, mine, authorization=bearer)
            assert answer.status_code < 300, (route, answer.text)
            assert answer.json().keys() <= told, route
            left.remove(route)
    assert left == set()
