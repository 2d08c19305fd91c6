"""Typists for locust: each opens a session, types, presses Enter, reads the reply, and repeats.

    locust -f loadtests/locustfile.py --headless -u 40 -r 10 -t 2m --host ws://127.0.0.1:8770

They talk with the companion that FOREMIND_COMPANION names, by default `wren`. FOREMIND_TOKEN holds
the tokens for a server that requires them, separated by commas: typists take turns at them, and
those with the same one are one user, whose rates and sessions are limited.

FOREMIND_SCENES, a number, lets them meet in so many scenes of the world `load` instead, each with
FOREMIND_MINDS (4) of the server's companions, in turn; a server that requires tokens wants one of
scope `world` first.

`make load` starts a server for this and writes a report. Locust runs on gevent, so the client is
websocket-client; Foremind's own needs asyncio.
"""

import contextlib
import itertools
import json
import os
import random
import time
import urllib.request
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import gevent
import websocket
from gevent.queue import Empty, Queue
from locust import User, events, task

from typing_model import ENTER_AFTER_S, TYPISTS

_numbers = itertools.count()
_COMPANION = os.environ.get("FOREMIND_COMPANION") or "wren"
_TOKENS = [token for token in os.environ.get("FOREMIND_TOKEN", "").split(",") if token]
_SCENES = int(os.environ.get("FOREMIND_SCENES") or 0)
_MINDS = int(os.environ.get("FOREMIND_MINDS") or 4)  # in a scene
_outcomes: Counter[str] = Counter()
_times: defaultdict[str, list[float]] = defaultdict(list)  # bounded by the length of the run

_PEOPLE = ("my sister", "my neighbour", "the smith", "my old teacher", "our captain", "the baker")
_MESSAGES = (
    "I promise to bring {} some bread tomorrow",
    "{} told me a secret about the harbour",
    "remember that {} is afraid of thunder",
    "we decided to visit {} in the spring",
    "I am so happy that {} came back",
    "hmm",
    "what do you know about {}?",
    "what did I promise to {}?",
)


class TypistUser(User):
    """One player who types messages and reads replies."""

    def on_start(self) -> None:
        """Connect and open a session."""
        number = next(_numbers)
        self.random = random.Random(number)
        self.typist = TYPISTS[number % len(TYPISTS)]
        started = time.perf_counter()
        self.socket = websocket.create_connection(f"{self.host}/v1/ws", timeout=60)
        self.events: Queue[dict[str, Any]] = Queue()
        self.reader = gevent.spawn(self.read)
        where: dict[str, Any] = {"companion": _COMPANION}
        if _SCENES:
            where = {"world": "load", "scene": f"scene-{number % _SCENES}"}
        who: dict[str, Any] = {"user": {"id": f"typist-{number}", "name": f"Typist {number}"}}
        if _TOKENS:
            who = {"token": _TOKENS[number % len(_TOKENS)]}
        self.write({"type": "session.open", **where, **who})
        self.expect("session.opened")
        self.report("session open", started)

    def on_stop(self) -> None:
        """Disconnect."""
        self.reader.kill()
        self.socket.close()

    @task
    def send_message(self) -> None:
        """Type a message at human speed, press Enter, read the reply."""
        text = self.random.choice(_MESSAGES).format(self.random.choice(_PEOPLE))
        for wait, draft in self.typist.type(text, self.random):
            gevent.sleep(wait)
            self.write({"type": "draft.update", "text": draft})
        gevent.sleep(self.random.uniform(*ENTER_AFTER_S))
        started = time.perf_counter()
        self.write({"type": "message.send", "id": uuid.uuid4().hex, "text": text})
        try:
            accepted = self.expect("message.accepted")
            self.report("Enter to accepted", started)
            _outcomes[accepted["context"]] += 1
            self.fire("Enter to context", accepted["ready_ms"], None)
            self.fire(f"Enter to context, {accepted['context']}", accepted["ready_ms"], None)
            first = self.expect("response.output_text.delta", "response.done")
            self.report("Enter to first token", started)
            if first["type"] != "response.done":
                self.expect("response.done")
        except (OSError, websocket.WebSocketException, RuntimeError, Empty) as error:
            self.report("message", started, error)
            self.on_stop()
            self.on_start()
        gevent.sleep(self.random.uniform(0.5, 2.0))  # reading the reply

    def write(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self.socket.send(json.dumps(message))

    def read(self) -> None:
        """Receive events and answer pings, also while typing."""
        with contextlib.suppress(OSError, websocket.WebSocketException):
            while frame := self.socket.recv():
                self.events.put(json.loads(frame))
        self.events.put({"type": "error", "error": {"code": "connection lost"}})

    def expect(self, *types: str) -> dict[str, Any]:
        """Return the next event of one of `types`, skipping others.

        Raises:
            RuntimeError: an error event came first.
        """
        while True:
            event: dict[str, Any] = self.events.get(timeout=30)
            if event["type"] in types:
                return event
            if event["type"] == "error":
                raise RuntimeError(event["error"]["code"])

    def report(self, name: str, started: float, error: Exception | None = None) -> None:
        """Record the time since `started`."""
        self.fire(name, (time.perf_counter() - started) * 1000, error)

    def fire(self, name: str, milliseconds: float, error: Exception | None) -> None:
        """Record a duration here and in locust's statistics."""
        _times[name].append(milliseconds)
        self.environment.events.request.fire(
            request_type="ws",
            name=name,
            response_time=milliseconds,
            response_length=0,
            exception=error,
        )


def _ask(host: str, method: str, path: str, body: Any = None) -> Any:
    """Send a request to the server, with the first token; return its answer."""
    url = host.replace("ws", "http", 1) + path
    headers = {"content-type": "application/json"}
    if _TOKENS:
        headers["authorization"] = f"Bearer {_TOKENS[0]}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def make_scenes(environment: Any, **_: Any) -> None:
    """Create the scenes, with every typist in one."""
    if not _SCENES:
        return
    known = _ask(environment.host, "GET", "/v1/companions")
    slugs = [companion["slug"] for companion in known]
    _ask(environment.host, "PUT", "/v1/worlds/load", {})
    typists = range(environment.parsed_options.num_users)
    for scene in range(_SCENES):
        players = [f"typist-{number}" for number in typists if number % _SCENES == scene]
        minds = [
            slugs[number % len(slugs)] for number in range(scene * _MINDS, (scene + 1) * _MINDS)
        ]
        body = {"players": players, "minds": sorted(set(minds))}
        _ask(environment.host, "PUT", f"/v1/worlds/load/scenes/scene-{scene}", body)


@events.quitting.add_listener  # type: ignore[untyped-decorator] # locust has no types
def write_report(environment: Any, **_: Any) -> None:
    """Write the figures to the path in FOREMIND_LOAD_REPORT, if set."""
    path = os.environ.get("FOREMIND_LOAD_REPORT")
    if path is None:
        return
    figures = {
        name: {
            "count": len(times),
            "errors": environment.stats.entries[name, "ws"].num_failures,
            **{f"p{percent}_ms": _percentile(times, percent) for percent in (50, 95, 99)},
        }
        for name, times in _times.items()
    }
    report = {"figures": figures, "contexts": dict(_outcomes)}
    Path(path).write_text(json.dumps(report))


def _percentile(times_ms: list[float], percent: int) -> float:
    """Return a percentile in milliseconds; locust's own are rounded to integers."""
    return round(sorted(times_ms)[min(len(times_ms) - 1, len(times_ms) * percent // 100)], 2)
