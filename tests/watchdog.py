"""Nothing may hold the event loop: the processor time of each callback, while a test runs."""

import asyncio
import gc
import resource
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_S = 0.050
_LOOK_S = 0.010  # how often a callback is looked at that takes long
_FRAMES = 6  # the innermost ones that are told of what it was seen at
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
        self._running: _Run | None = None
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
            self._running = running = _Run()
            try:
                return run(handle)  # type: ignore[no-any-return]
            finally:
                self._running = None
                took_s = time.thread_time() - running.began - self._collected_s
                if took_s > self._most_s and not (away or self._away or who.is_no_server):
                    self.holds.append(f"{took_s * 1000:.0f} ms: {who}; {running}")

        handles._run = timed
        gc.callbacks.append(self._collecting)
        ended = threading.Event()
        looking = threading.Thread(target=self._looking, args=(ended,), name="watchdog")
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
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

    def _looking(self, ended: threading.Event) -> None:
        """Note where a callback is that was there already when last looked at."""
        last: _Run | None = None
        while not ended.wait(_LOOK_S):
            running = self._running
            if running is not None and running is last:
                frame = sys._current_frames().get(self._thread)
                running.seen.append(traceback.extract_stack(frame)[-_FRAMES:])
            last = running

    def _collecting(self, phase: str, _: object) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting_since = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since


class _Run:
    """One callback: when it began, in its thread's processor time, and where it was seen."""

    def __init__(self) -> None:
        self.seen: list[list[traceback.FrameSummary]] = []
        self._usage = resource.getrusage(resource.RUSAGE_THREAD)
        self.began = time.thread_time()

    def __str__(self) -> str:
        """Tell what of the time was the kernel's, and where the code was."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        kernel_ms = (usage.ru_stime - self._usage.ru_stime) * 1000
        faults = usage.ru_minflt - self._usage.ru_minflt
        places = [
            " < ".join(f"{Path(at.filename).name}:{at.lineno}" for at in reversed(stack))
            for stack in self.seen
        ]
        seen = "\n  ".join(["seen at", *places]) if places else "never seen"
        return f"{kernel_ms:.0f} ms in the kernel, {faults} page faults, {seen}"


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
