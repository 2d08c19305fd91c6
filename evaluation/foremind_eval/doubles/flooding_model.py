"""Language model servers whose response never ends: each repeats one kind of data."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from foremind_eval.doubles.model_server import chunk_line

_PIECE_BYTES = 16_384
_OK = "HTTP/1.1 200 OK\r\n"
_EVENTS = "Content-Type: text/event-stream\r\n\r\n"
_JSON = "Content-Type: application/json\r\n\r\n"
_CHUNKED = f"{_OK}Transfer-Encoding: chunked\r\n{_EVENTS}"


@dataclass(frozen=True, slots=True)
class Flood:
    """An endless response: `start`, then `repeated` until the client disconnects."""

    start: str
    repeated: str
    compressed: bool = False


def _chunk(text: str) -> str:
    return f"{len(text):x}\r\n{text}\r\n"


_DELTA = '{"choices": [{"index": 0, "delta": {"content": "'

FLOODS = {
    "a line": Flood(_OK + _EVENTS + 'data: {"id": "', "x"),
    "a line in chunks": Flood(_CHUNKED + _chunk("data: "), _chunk("x" * 64)),
    "a delta": Flood(f"{_OK}{_EVENTS}data: {_DELTA}", "word "),
    "lines of one event": Flood(_OK + _EVENTS, "data: word\n"),
    "comments": Flood(_OK + _EVENTS, ": ping\n\n"),
    "comments in chunks": Flood(_CHUNKED, _chunk(": ping\n\n")),
    "empty lines": Flood(_OK + _EVENTS, "\r\n"),
    "empty deltas": Flood(_OK + _EVENTS, chunk_line("")),
    "events of nothing": Flood(_OK + _EVENTS, 'data: {"choices": []}\n\n'),
    "thoughts of nothing": Flood(_OK + _EVENTS, chunk_line("").replace("content", "reasoning")),
    "one answer instead of a stream": Flood(f"{_OK}{_JSON}{_DELTA}", "word "),
    "a compressed line": Flood(f"{_OK}Content-Encoding: gzip\r\n{_EVENTS}", "x", compressed=True),
    "a header": Flood(f"{_OK}X-Endless: ", "x"),
    "headers": Flood(_OK, "X-Endless: x\r\n"),
    "the size of a chunk": Flood(_CHUNKED + "4;", "x"),
    "a trailer": Flood(_CHUNKED + "0\r\nX-Endless: ", "x"),
    "the text of an error": Flood(f"HTTP/1.1 500 Broken\r\n{_JSON}" + '{"error": "', "x"),
    "the text of a redirection": Flood(
        f"HTTP/1.1 307 Moved\r\nLocation: /v1/elsewhere\r\n{_JSON}", "x"
    ),
}
FLOOD_AFTER_DONE = Flood(_OK + _EVENTS + chunk_line("Hello.") + "data: [DONE]\n\n", ": ping\n\n")


@dataclass
class FloodingModel:
    """A running server: `url` for FOREMIND_LLM_URL, its response, requests and how many ended."""

    url: str
    flood: Flood
    requests: int = 0
    disconnects: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):  # cancelled before it was sent
            self._writers.discard(writer)
            writer.close()
            return
        self.requests += 1
        try:
            compressor = zlib.compressobj(wbits=31)
            writer.write(self.flood.start.encode())
            repetitions = _PIECE_BYTES // len(self.flood.repeated)
            piece = (self.flood.repeated * repetitions).encode()
            while True:
                writer.write(compressor.compress(piece) if self.flood.compressed else piece)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            self.disconnects += 1
        finally:
            self._writers.discard(writer)
            writer.close()

    def hang_up(self) -> None:
        """Abort the connections that are still open."""
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def flooding_model(flood: Flood) -> AsyncIterator[FloodingModel]:
    """Run a flooding server on a free loopback port."""
    model = FloodingModel("", flood)
    server = await asyncio.start_server(model._answer, "127.0.0.1", 0)
    async with server:
        model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield model
        finally:
            model.hang_up()
