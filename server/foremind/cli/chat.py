"""`foremind chat`: a terminal client that sends drafts as they are typed."""

import asyncio
import codecs
import contextlib
import getpass
import os
import re
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import typer
from rich.cells import cell_len
from tzlocal import get_localzone_name

from foremind.app.configuration import load_settings
from foremind.cli.running import run, say
from foremind.domain.errors import SetupError
from foremind_client import Closed, Conversation, Identity, Refused, connect

LAMP = {"listening": "○", "recalling": "◔", "ready": "●", "away": "×"}
# Arrow, function and Alt keys; and the beginning of one whose end has not arrived.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O\x1b])", re.DOTALL)
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)\Z")
_CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Typed:
    """The draft changed."""


@dataclass(frozen=True, slots=True)
class Entered:
    """Enter was pressed on `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class StopPressed:
    """Escape: stop the reply."""


@dataclass(frozen=True, slots=True)
class LeavePressed:
    """Ctrl-C, or Ctrl-D on an empty line."""


Key = Typed | Entered | StopPressed | LeavePressed


@dataclass
class LineEditor:
    """Holds the draft; `feed` applies keyboard input and returns what it means."""

    draft: str = ""
    _incomplete: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, raw: bytes) -> list[Key]:
        """Apply input in order; characters and keys of several bytes may arrive in pieces.

        Arrow and function keys are ignored.
        """
        text = self._incomplete + self._decoder.decode(raw)
        beginning = _INCOMPLETE.search(text)
        self._incomplete = "" if beginning is None else beginning[0]
        text = _SEQUENCE.sub("", text.removesuffix(self._incomplete))
        keys = [self._apply(character) for character in text]
        return [key for key in keys if key is not None]

    def _apply(self, character: str) -> Key | None:
        match character:
            case "\r" | "\n":
                text, self.draft = self.draft, ""
                return Entered(text) if text.strip() else Typed()
            case "\x1b":
                return StopPressed()
            case "\x03":
                return LeavePressed()
            case "\x04":
                return None if self.draft else LeavePressed()
            case "\x7f" | "\b":
                self.draft = self.draft[:-1]
            case "\x15":  # Ctrl-U
                self.draft = ""
            case "\x17":  # Ctrl-W
                self.draft = self.draft.rstrip().rpartition(" ")[0]
            case _ if character.isprintable():
                self.draft += character
            case _:
                return None
        return Typed()


def prompt_line(state: str, detail: str, draft: str, width: int) -> str:
    """Return the input line: status lamp, status text, and the end of the draft that fits."""
    status = f"{LAMP[state]} {detail or state} > "
    available = max(8, width - cell_len(status) - 1)
    visible = draft
    while cell_len(visible) > available:
        visible = visible[1:]
    return f"{_CLEAR_LINE}\x1b[2m{status}\x1b[0m{visible}"


def harmless(text: str) -> str:
    """Return `text` without control characters, which could control the terminal."""
    return "".join(character for character in text if character == "\n" or character.isprintable())


def above(line: str) -> str:
    """Return what prints `line` in place of the input line, and begins a new one below."""
    return f"{_CLEAR_LINE}{line}\r\n"


#: Schemes of addresses that people know a server by, and those of its WebSocket.
_SOCKET_SCHEMES = {"": "ws", "ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def chat(
    url: str | None = typer.Option(
        None,
        envvar="FOREMIND_URL",
        help="Address of the server. Default: this machine, at FOREMIND_PORT.",
    ),
    companion: str = typer.Option("wren", help="Slug of the companion."),
    user: str = typer.Option(
        getpass.getuser(), help="Your display name; your user id is terminal- followed by it."
    ),
    token: str | None = typer.Option(
        None, envvar="FOREMIND_TOKEN", help="Access token, if the server requires one."
    ),
) -> None:
    """Chat with a companion in the terminal; it recalls while you type.

    Enter sends the message, Esc stops the reply, Ctrl-C exits. The lamp in front of the draft turns
    ● once the memories for it are ready. If standard input is a pipe, each line is sent as a
    message.
    """
    identity = Identity(companion, f"terminal-{user}", user, token, get_localzone_name())
    address = _socket_url(url or f"127.0.0.1:{load_settings().port}")
    in_terminal = sys.stdin.isatty()
    run(_Terminal(address, identity).run() if in_terminal else _chat_from_pipe(address, identity))


def _socket_url(given: str) -> str:
    """Return the WebSocket URL of a server, given that, the page's address, or host and port.

    Raises:
        SetupError: it is no such address.
    """
    scheme, separator, rest = given.strip().rpartition("://")
    kind = _SOCKET_SCHEMES.get(scheme.lower())
    try:
        parts = urlsplit(f"//{rest}")
        usable = kind is not None and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable or (separator and not scheme) or re.search(r"[\s\x00-\x1f#]", rest):
        raise SetupError(
            f"--url {given!r}: expected the address of a server, such as game.example:8770, "
            "http://127.0.0.1:8770 or wss://game.example/v1/ws"
        )
    path = parts.path if parts.path not in ("", "/") else "/v1/ws"
    return urlunsplit((str(kind), parts.netloc, path, parts.query, ""))


def _unreachable(url: str, error: Exception) -> str:
    """Say that a server cannot be reached, and what to look at."""
    if not isinstance(error, ConnectionRefusedError):
        return f"{url}: {error}"
    return (
        f"{url}: no server listens there. Does one run (foremind serve)? "
        "--url or FOREMIND_URL names another."
    )


async def _chat_from_pipe(url: str, identity: Identity) -> None:
    """Send each line of standard input, and print the replies."""
    try:
        async with connect(url) as client:
            opened = await client.open_session(**asdict(identity))
            if opened["type"] == "error":
                raise SetupError(opened["error"]["message"])
            for line in filter(str.strip, await asyncio.to_thread(sys.stdin.readlines)):
                await client.draft(line.rstrip("\n"))
                await client.send(line.rstrip("\n"))
                # The next line may be about this one, which must be ingested first.
                events = await client.expect_all("response.done", "memory.stored")
                done = events["response.done"]
                print(f"{opened['companion']['name']}: {done['text']}", flush=True)
                if done["status"] == "failed":
                    say(done["error"]["message"])
    except (OSError, Closed) as error:
        raise SetupError(_unreachable(url, error)) from None


class _Terminal:
    """A conversation in a terminal: turns above, the draft and the lamp on the last line."""

    def __init__(self, url: str, identity: Identity) -> None:
        self._url = url
        self._user = identity.name
        self._companion_name = identity.companion
        self._conversation = Conversation(
            url,
            identity,
            open_timeout_s=None,
            on_lost=self._on_connection_lost,
            contexts=True,  # for the lamp
        )
        self._editor = LineEditor()
        self._state = "away"
        self._detail = "connecting"
        self._loss_reported = False
        self._response_id: str | None = None  # of the reply in progress
        self._reply_shown = False  # the reply has begun on the last line
        self._exit = asyncio.Event()
        self._pause_s = 0.5
        self._recall_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        with _raw_keyboard():
            loop.add_reader(sys.stdin.fileno(), self._on_input)
            conversation = asyncio.create_task(self._converse())
            exited = asyncio.create_task(self._exit.wait())
            try:
                await asyncio.wait({conversation, exited}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                loop.remove_reader(sys.stdin.fileno())
                for task in (conversation, exited):
                    task.cancel()
                await asyncio.gather(exited, return_exceptions=True)
                self._write(above(""))
        with contextlib.suppress(asyncio.CancelledError):
            await conversation

    async def _converse(self) -> None:
        """Show events until the server ends the conversation for good."""
        try:
            async with self._conversation as conversation:
                async for event in conversation.events():
                    self._on_event(event)
        except (Closed, Refused) as error:
            raise SetupError(str(error)) from None

    def _on_connection_lost(self, error: Exception) -> None:
        if not self._loss_reported:
            self._note(f"{_unreachable(self._url, error)}; trying again")
        self._loss_reported = True
        self._lamp("away", "not connected")

    def _on_input(self) -> None:
        for key in self._editor.feed(os.read(sys.stdin.fileno(), 1024)):
            match key:
                case Typed():
                    self._conversation.type(self._editor.draft)
                    self._show_recall()
                case Entered(text):
                    self._send(text)
                case StopPressed() if self._response_id is not None:
                    self._conversation.cancel(self._response_id)
                case LeavePressed():
                    self._exit.set()
        self._draw()

    def _send(self, text: str) -> None:
        try:
            self._conversation.send(text)
        except OverflowError as error:
            self._note(str(error))
            return
        self._show_recall(stop=True)
        self._print(f"{self._user}: {text}")

    def _show_recall(self, *, stop: bool = False) -> None:
        """Show "listening", and after a pause "recalling", unless there is no draft."""
        self._cancel_recall_timer()
        if self._state == "away":
            return
        self._state, self._detail = "listening", ""
        if self._editor.draft.strip() and not stop:
            self._recall_timer = asyncio.get_running_loop().call_later(
                self._pause_s, lambda: self._lamp("recalling", "")
            )

    def _cancel_recall_timer(self) -> None:
        if self._recall_timer is not None:
            self._recall_timer.cancel()

    def _on_opened(self, opened: dict[str, Any]) -> None:
        self._loss_reported = False
        if opened["resumed"]:
            self._lamp("listening", "")
            return
        name = opened["companion"]["name"]
        self._companion_name = name
        self._pause_s = opened["pause_ms"] / 1000
        if opened["model"] is None:
            self._note("No language model is configured: the offline model quotes what it recalls.")
        for turn in opened["turns"][-6:]:
            self._print(f"{self._user if turn['speaker'] == 'user' else name}: {turn['text']}")
        if not opened["turns"]:
            self._print(f"{name}: {opened['companion']['greeting']}")
        self._lamp("listening", "")

    def _on_event(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "session.opened":
                self._on_opened(event)
            case "turn.stored":
                own = event["turn"]["speaker"] == "user"  # from another window
                name = self._user if own else self._companion_name
                self._print(f"{name}: {event['turn']['text']}")
            case "context.ready" if event["trigger"] != "send":
                self._cancel_recall_timer()
                count, elapsed_ms = len(event["memories"]), event["timings"]["total_ms"]
                noun = "memory" if count == 1 else "memories"
                self._lamp("ready", f"ready, {count} {noun} in {elapsed_ms:.0f} ms")
            case "response.created":
                self._response_id = event["response_id"]
            case "response.output_text.delta":
                self._show_delta(event["delta"])
            case "response.done":
                self._on_done(event)
            case "error":
                self._note(event["error"]["message"])

    def _show_delta(self, text: str) -> None:
        if not self._reply_shown:
            self._write(f"\r\x1b[K{self._companion_name}: ")
            self._reply_shown = True
        self._write(harmless(text).replace("\n", "\r\n"))

    def _on_done(self, done: dict[str, Any]) -> None:
        self._response_id = None
        if self._reply_shown:
            self._reply_shown = False
            self._write("\r\n")
        if done["status"] == "failed":
            self._note(done["error"]["message"])
        self._draw()

    def _lamp(self, state: str, detail: str) -> None:
        self._state, self._detail = state, detail
        self._draw()

    def _note(self, line: str) -> None:
        self._print(line, style=_DIM)

    def _print(self, line: str, style: str = "") -> None:
        self._write(above(style + harmless(line).replace("\n", "\r\n") + _PLAIN))
        self._draw()

    def _draw(self) -> None:
        # A reply in progress occupies the last line; the draft is drawn again after it.
        if not self._reply_shown:
            width = shutil.get_terminal_size().columns
            self._write(prompt_line(self._state, self._detail, self._editor.draft, width))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


@contextlib.contextmanager
def _raw_keyboard() -> Iterator[None]:
    """Switch the terminal to raw mode for the length of the block."""
    descriptor = sys.stdin.fileno()
    attributes = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # keeps what was typed meanwhile
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)
