"""Detect callbacks that block the event loop, by their CPU time, while a test runs."""

import asyncio
import faulthandler
import gc
import os
import re
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_CALLBACK_S = 0.050
_USAGE_AGE_S = 0.002  # of what a run had used before it; reading that costs microseconds
_SAMPLE_S = 0.010  # how often the stack of a running callback is sampled
#: How many times as much a run may take that was never sampled: most such are no block of the loop
#: but a pause of the whole machine, which counts as CPU time.
_UNSEEN = 2
_MAX_FRAMES = 6  # innermost frames in a report
_FRAME = re.compile(r'^  File "(.*)", line (\d+)', re.MULTILINE)
_TESTS = Path(__file__).parent
#: Code that is not the server's: tests, test doubles, clients and test runners.
_NOT_SERVER = (
    f"{_TESTS}/",
    f"{_TESTS.parent}/evaluation/",
    f"{_TESTS.parent}/clients/",
    "/pytest_asyncio/",
    "/websockets/",
)


class Watchdog:
    """Records callbacks that blocked this thread's event loop for too long.

    It measures the thread's CPU time, so that a busy machine makes no difference, without the time
    of garbage collections, which are not caused by the callback that they interrupt, and without
    what a hypervisor took from the machine meanwhile, which a guest counts as CPU time.
    """

    def __init__(self, max_s: float = MAX_CALLBACK_S) -> None:
        self.violations: list[str] = []
        self._max_s = max_s
        self._paused = 0
        self._thread = threading.get_ident()
        self._running: _Run | None = None
        self._collection_started = 0.0
        self._collection_s = 0.0
        self._usage = _Usage()
        self._stolen_s = 0.0  # since the machine started, as of the latest sample

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running event loop for the duration of a block."""
        watched = asyncio.get_running_loop()
        handles: Any = asyncio.Handle
        run = handles._run

        def timed(handle: Any) -> None:
            if handle._loop is not watched:
                return run(handle)  # type: ignore[no-any-return]
            owner, paused = _CallbackOwner(handle._callback), self._paused
            self._collection_s = 0.0
            self._running = running = _Run(self._recent_usage())
            stolen_s = self._stolen_s
            try:
                return run(handle)  # type: ignore[no-any-return]
            finally:
                self._running = None
                cpu_s = 0.0
                if time.perf_counter() - running.started > self._max_s:  # no less than CPU time
                    cpu_s = time.thread_time() - running.started_cpu_s - self._collection_s
                    cpu_s -= _USAGE_AGE_S  # perhaps not its own
                max_s = self._max_s if running.stacks else _UNSEEN * self._max_s
                blocked = cpu_s > max_s and cpu_s - _stolen_s() + stolen_s > max_s
                if blocked and owner.is_server and not (paused or self._paused):
                    self.violations.append(f"{cpu_s * 1000:.0f} ms: {owner}; {running}")

        handles._run = timed
        gc.callbacks.append(self._on_collection)
        ended = threading.Event()
        sampler = threading.Thread(target=self._sample_stacks, args=(ended,), name="watchdog")
        sampler.start()
        try:
            yield
        finally:
            ended.set()
            sampler.join()
            gc.callbacks.remove(self._on_collection)
            handles._run = run

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ignore what happens in a block, such as the start or stop of a server."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def _recent_usage(self) -> "_Usage":
        """Return what the thread had used at most `_USAGE_AGE_S` ago."""
        if time.perf_counter() - self._usage.taken > _USAGE_AGE_S:
            self._usage = _Usage()
        return self._usage

    def _sample_stacks(self, ended: threading.Event) -> None:
        """Record the stack of a callback that already ran at the previous sample."""
        previous: _Run | None = None
        while not ended.wait(_SAMPLE_S):
            self._stolen_s = _stolen_s()
            running = self._running
            if running is not None and running is previous:
                running.stacks.append(innermost_frames(self._thread)[:_MAX_FRAMES])
            previous = running

    def _on_collection(self, phase: str, _: object) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_started = time.thread_time()
        else:
            self._collection_s += time.thread_time() - self._collection_started


def innermost_frames(thread: int) -> list[str]:
    """Return the stack of a running thread as `file:line`, innermost first.

    It is taken in one call that no thread interrupts. Followed frame by frame, a stack goes on
    changing, and now and then that crashed the process.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        _, _, stack = file.read().partition(f"Thread 0x{thread:016x} ")
    return [f"{Path(name).name}:{line}" for name, line in _FRAME.findall(stack.split("\n\n")[0])]


def _stolen_s() -> float:
    """Return for how many seconds a hypervisor has kept this machine waiting; 0 if unknown."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


class _Usage:
    """What this thread has used so far."""

    def __init__(self) -> None:
        self.resources = resource.getrusage(resource.RUSAGE_THREAD)
        self.cpu_s = time.thread_time()
        self.taken = time.perf_counter()


class _Run:
    """One run of a callback: its start, also in CPU time of its thread, and sampled stacks."""

    def __init__(self, usage: _Usage) -> None:
        self.stacks: list[list[str]] = []
        self._usage = usage
        self.started = time.perf_counter()
        self.started_cpu_s = usage.cpu_s

    def __str__(self) -> str:
        """Return the kernel time, the page faults and the sampled stacks."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        kernel_ms = (usage.ru_stime - self._usage.resources.ru_stime) * 1000
        faults = usage.ru_minflt - self._usage.resources.ru_minflt
        stacks = [" < ".join(stack) for stack in self.stacks]
        sampled = "\n  ".join(["sampled at", *stacks]) if stacks else "never sampled"
        return f"{kernel_ms:.0f} ms in the kernel, {faults} page faults, {sampled}"


class _CallbackOwner:
    """The owner of a callback, captured before it runs: a finished task loses its coroutine."""

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        self._owner = getattr(callback, "__self__", None)
        self._coroutine: Any = (
            self._owner.get_coro() if isinstance(self._owner, asyncio.Task) else None
        )

    @property
    def is_server(self) -> bool:
        """Whether it is the server's, not a test's, a test double's or a client's.

        Nor is what decides on full collections, besides these: it walks the heap, and that of a
        test process is many times a server's.
        """
        if isinstance(self._owner, asyncio.Task) and self._owner.get_name() == "garbage":
            return False
        code = getattr(self._coroutine, "cr_code", None)
        code = code or getattr(self._callback, "__code__", None)
        return code is None or not any(path in code.co_filename for path in _NOT_SERVER)

    def __str__(self) -> str:
        """Return the task with its chain of awaiting coroutines, or the callback."""
        if isinstance(self._owner, asyncio.Task):
            awaiting = " < ".join(reversed(list(_await_chain(self._coroutine))))
            return f"task {self._owner.get_name()}: {awaiting or self._owner!r}"
        protocol = getattr(self._owner, "get_protocol", lambda: None)()
        suffix = "" if protocol is None else f" for {type(protocol).__qualname__}"
        return f"callback {getattr(self._callback, '__qualname__', self._callback)}{suffix}"


def _await_chain(coroutine: Any) -> Iterator[str]:
    """Yield a task's coroutines with their lines, outermost first."""
    while hasattr(coroutine, "cr_frame"):
        line = "" if coroutine.cr_frame is None else f":{coroutine.cr_frame.f_lineno}"
        yield f"{coroutine.__qualname__}{line}"
        coroutine = coroutine.cr_await
