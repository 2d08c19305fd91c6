"""What the program around a listener decides: its limits, and what it is told and asked."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


class Refusal(NamedTuple):
    """The error response to a request that is not served."""

    status: int
    code: str
    message: str


class BodyRefused(Exception):
    """A request's body does not fit beside those of others; the request may be made again later."""


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; no effect once it has run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the connections of a listener may cost.

    Attributes:
        connections: maximum number; by default what file descriptors allow, up to 10,000.
        reserved_descriptors: file descriptors that the process needs for everything else.
        per_address: maximum number of anonymous connections from one address.
        shared_addresses: addresses and networks of many users, which are exempt from that, as
            loopback and trusted proxies are.
        trusted_proxies: addresses whose X-Forwarded-For is trusted; "*" for all.
        body_bytes: maximum bytes of all request bodies at once, and of all large responses.
        frame_bytes: maximum size of a WebSocket frame.
        bytes_per_s: what a WebSocket may send; more is read more slowly.
        head_timeout_s: how long a connection may take to send the head of a request.
        ping_interval_s: interval of WebSocket pings.
        ping_timeout_s: maximum wait for a pong.
    """

    connections: int | None = None
    reserved_descriptors: int = 256
    per_address: int = 500
    shared_addresses: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ("127.0.0.1",)
    body_bytes: int = 268_435_456
    frame_bytes: int = 65_536
    bytes_per_s: float = 983_040.0
    head_timeout_s: float = 10.0
    ping_interval_s: float = 20.0
    ping_timeout_s: float = 20.0


def _ignore(_: object) -> None:
    """Tell nobody."""


def _plain_error(refusal: Refusal) -> bytes:
    return json.dumps({"error": {"code": refusal.code, "message": refusal.message}}).encode()


def _start_task(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    return asyncio.create_task(work, name=name)


def _call_at(when: float, callback: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(max(0.0, when - time.perf_counter()), callback)


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a listener tells and asks the program around it.

    Attributes:
        on_refused: is told why a connection or request was refused or ended: a word for a metric.
        on_connections: is told the number of open connections when that has changed.
        error_body: returns the JSON body of a refusal's response.
        body_refused: returns what `receive` raises in an application whose request's body does not
            fit, given a message.
        start_task: starts a coroutine as a task of this name.
        monotonic: returns monotonic seconds.
        call_at: calls back once `monotonic` has reached a time.
    """

    on_refused: Callable[[str], None] = _ignore
    on_connections: Callable[[int], None] = _ignore
    error_body: Callable[[Refusal], bytes] = _plain_error
    body_refused: Callable[[str], Exception] = BodyRefused
    start_task: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"] = _start_task
    monotonic: Callable[[], float] = time.perf_counter
    call_at: Callable[[float, Callable[[], None]], Timer] = _call_at
