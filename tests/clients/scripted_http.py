"""An HTTP server that replays recorded requests one by one, and checks them by the API."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import msgspec

from foremind.api.turn_shapes import (
    ChooseBody,
    ChosenAnswer,
    EditBody,
    RegenerateBody,
    TurnAnswer,
    TurnBody,
)
from foremind.api.world_routes import (
    ResultBody,
    StoredWorldEvents,
    StoredWorldEventView,
    WorldEventsBody,
)
from tests.clients.placeholders import Placeholders

Exchange = dict[str, Any]
# What each route reads and answers.
_SHAPES: dict[str, tuple[Any, Any]] = {
    "/v1/turns": (TurnBody, TurnAnswer),
    "/v1/turns/edit": (EditBody, TurnAnswer),
    "/v1/turns/regenerate": (RegenerateBody, TurnAnswer),
    "/v1/turns/choose": (ChooseBody, ChosenAnswer),
    "/v1/worlds/vale/events": (WorldEventsBody, StoredWorldEvents),
    "/v1/worlds/vale/results": (ResultBody, StoredWorldEventView),
}


class ScriptedHttpServer:
    """Answers each request as recorded.

    An exchange has `request` (a method and path, perhaps `token` and members of `body`) and either
    `status` with `answer` or `text`, and perhaps `headers`, or `abort`: no answer at all.
    """

    def __init__(self, exchanges: list[Exchange]) -> None:
        self._left = list(exchanges)
        self._values = Placeholders()
        #: What was not as recorded; empty in the end.
        self.wrong: list[str] = []

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        length = int(handler.headers.get("content-length", 0))
        body = handler.rfile.read(length)
        if not self._left:
            self.wrong.append(f"one request more than expected: {handler.path} {body!r}")
            return
        exchange = self._left.pop(0)
        self._check(exchange["request"], handler, body)
        if exchange.get("abort"):
            return
        answer = exchange.get("answer")  # encoded as by the real server: compact, in UTF-8
        text = exchange["text"].encode() if "text" in exchange else msgspec.json.encode(answer)
        if exchange["status"] == 200 and handler.path in _SHAPES:
            msgspec.convert(answer, _SHAPES[handler.path][1])
        handler.send_response(exchange["status"])
        for name, value in exchange.get("headers", {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)

    def over(self) -> None:
        """Check that all was asked, and nothing else."""
        assert not self.wrong, self.wrong
        assert not self._left, f"never asked: {self._left}"

    def _check(
        self, expected: dict[str, Any], handler: BaseHTTPRequestHandler, body: bytes
    ) -> None:
        if (handler.command, handler.path) != (expected["method"], expected["path"]):
            self.wrong.append(f"expected {expected}, received {handler.command} {handler.path}")
        token = f"Bearer {expected['token']}" if "token" in expected else None
        if handler.headers.get("authorization") != token:
            self.wrong.append(f"expected {expected}, received {handler.headers['authorization']}")
        if handler.command == "POST":
            if handler.headers["content-type"] != "application/json":
                self.wrong.append(f"received {handler.headers['content-type']}")
            msgspec.json.decode(body, type=_SHAPES[handler.path][0])
            if not self._values.match(expected["body"], json.loads(body)):
                self.wrong.append(f"expected {expected}, received {body.decode()}")


@contextmanager
def replaying(exchanges: list[Exchange]) -> Iterator[str]:
    """Run the server; yield its URL. Everything must have been asked when the block ends."""
    script = ScriptedHttpServer(exchanges)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            try:
                script.answer(self)
            except Exception as error:
                script.wrong.append(repr(error))
                raise

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - called by these names

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
    script.over()
