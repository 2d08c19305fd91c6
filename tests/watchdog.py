"""Nothing may hold the event loop: the processor time of each callback, while a test runs."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_S = 0.050
_TESTS = Path(__file__).parent
#: Where the code begins whose tasks are no server's: tests, doubles, clients, and what runs tests.
_NO_SERVER = (
    f"{_TESTS}/",
    f"{_TESTS.parent}/server/foremind/testing/",
    f"{_TESTS.parent}/server/foremind/client/",
    "/pytest_asyncio/",
    "/websockets/",
)


class Watchdog:
    """Notes what held the loop of this thread for too long.

    It measures the thread's own processor time, so that a busy machine makes no difference, and
    leaves out what the garbage collector took, whose rounds are not the doing of who meets them.
    """

    def __init__(self, most_s: float = MOST_S) -> None:
        self.holds: list[str] = []
        self._most_s = most_s
        self._away = 0
        self._thread = threading.get_ident()
        self._collecting_since = 0.0
        self._collected_s = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the loop that runs now, for the length of a block."""
        watched = asyncio.get_running_loop()
        handles: Any = asyncio.Handle
        run = handles._run

        def timed(handle: Any) -> None:
            if handle._loop is not watched:
                return run(handle)  # type: ignore[no-any-return]
            who, away = _Who(handle._callback), self._away
            self._collected_s = 0.0
            began = time.thread_time()
            try:
                return run(handle)  # type: ignore[no-any-return]
            finally:
                took_s = time.thread_time() - began - self._collected_s
                if took_s > self._most_s and not (away or self._away or who.is_no_server):
                    self.holds.append(f"{took_s * 1000:.0f} ms: {who}")

        handles._run = timed
        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)
            handles._run = run

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """Leave out what happens meanwhile: a server starts or stops."""
        self._away += 1
        try:
            yield
        finally:
            self._away -= 1

    def _collecting(self, phase: str, _: object) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since


class _Who:
    """Whose callback it is; told before it runs, because a task that is done forgets."""

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        self._owner = getattr(callback, "__self__", None)
        self._coroutine: Any = (
            self._owner.get_coro() if isinstance(self._owner, asyncio.Task) else None
        )

    @property
    def is_no_server(self) -> bool:
        """Whether it is the doing of a test, a double, or a client."""
        code = getattr(self._coroutine, "cr_code", None)
        code = code or getattr(self._callback, "__code__", None)
        return code is not None and any(each in code.co_filename for each in _NO_SERVER)

    def __str__(self) -> str:
        """Name the task, its coroutine and where that waits by now, or the callback."""
        if isinstance(self._owner, asyncio.Task):
            waits = " < ".join(reversed(list(_waiting(self._coroutine))))
            return f"task {self._owner.get_name()}: {waits or self._owner!r}"
        protocol = getattr(self._owner, "get_protocol", lambda: None)()
        of = "" if protocol is None else f" for {type(protocol).__qualname__}"
        return f"callback {getattr(self._callback, '__qualname__', self._callback)}{of}"


def _waiting(coroutine: Any) -> Iterator[str]:
    """Yield the coroutines of a task, from the one that it began with."""
    while hasattr(coroutine, "cr_frame"):
        line = "" if coroutine.cr_frame is None else f":{coroutine.cr_frame.f_lineno}"
        yield f"{coroutine.__qualname__}{line}"
        coroutine = coroutine.cr_await
