"""`foremind chat`: talk with a companion in a terminal, with real keystrokes."""

import asyncio
import contextlib
import getpass
import os
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer
from tzlocal import get_localzone_name

from foremind.cli.line_editor import (
    Entered,
    LeavePressed,
    LineEditor,
    StopPressed,
    Typed,
    above,
    harmless,
    prompt_line,
)
from foremind.cli.running import run, say
from foremind.client import Closed, Conversation, Identity, Refused, connect
from foremind.domain.errors import SetupError

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def chat(
    url: str = typer.Option("ws://127.0.0.1:8770/v1/ws", help="The server's socket."),
    companion: str = typer.Option("wren", help="Slug of the companion."),
    user: str = typer.Option(getpass.getuser(), help="Your name; it is also who you are."),
    token: str | None = typer.Option(
        None, envvar="FOREMIND_TOKEN", help="A signed token, where the server wants one."
    ),
) -> None:
    """Talk with a companion: it recalls while you type.

    Enter sends, Esc stops the reply, Ctrl-C leaves. Lines from a pipe are sent one by one.
    """
    who = Identity(companion, f"terminal-{user}", user, token, get_localzone_name())
    run(_Terminal(url, who).run() if sys.stdin.isatty() else _piped(url, who))


async def _piped(url: str, who: Identity) -> None:
    """Send each line of standard input and print the reply to it."""
    try:
        async with connect(url) as client:
            opened = await client.open_session(**asdict(who))
            if opened["type"] == "error":
                raise SetupError(opened["error"]["message"])
            for line in filter(str.strip, await asyncio.to_thread(sys.stdin.readlines)):
                await client.draft(line.rstrip("\n"))
                await client.send(line.rstrip("\n"))
                # The next line may ask about this one: let it be judged first.
                seen = await client.expect_all("response.done", "memory.stored")
                done = seen["response.done"]
                print(f"{opened['companion']['name']}: {done['text']}", flush=True)
                if done["status"] == "failed":
                    say(done["error"]["message"])
    except (OSError, Closed) as error:
        raise SetupError(f"{url}: {error}") from None


class _Terminal:
    """A conversation on a screen: what was said above, the draft and its lamp on the last line."""

    def __init__(self, url: str, who: Identity) -> None:
        self._url = url
        self._user = who.name
        self._companion_name = who.companion
        self._conversation = Conversation(url, who, open_timeout_s=None, lost=self._lost)
        self._editor = LineEditor()
        self._state = "away"
        self._detail = "connecting"
        self._loss_told = False
        self._reply: str | None = None  # the reply under way
        self._speaking = False  # its words are on the last line
        self._left = asyncio.Event()
        self._pause_s = 0.5
        self._recalling: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        with _raw_keyboard():
            loop.add_reader(sys.stdin.fileno(), self._pressed)
            talking = asyncio.create_task(self._talk())
            leaving = asyncio.create_task(self._left.wait())
            try:
                await asyncio.wait({talking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                loop.remove_reader(sys.stdin.fileno())
                for task in (talking, leaving):
                    task.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
                self._write(above(""))
        with contextlib.suppress(asyncio.CancelledError):
            await talking

    async def _talk(self) -> None:
        """Stay connected until the server says not to come back."""
        try:
            async with self._conversation as conversation:
                async for event in conversation.events():
                    self._received(event)
        except (Closed, Refused) as error:
            raise SetupError(str(error)) from None

    def _lost(self, error: Exception) -> None:
        if not self._loss_told:
            self._note(f"{self._url}: {error}; trying again")
        self._loss_told = True
        self._lamp("away", "not connected")

    def _pressed(self) -> None:
        for key in self._editor.feed(os.read(sys.stdin.fileno(), 1024)):
            match key:
                case Typed():
                    self._conversation.type(self._editor.draft)
                    self._listen()
                case Entered(text):
                    self._enter(text)
                case StopPressed() if self._reply is not None:
                    self._conversation.cancel(self._reply)
                case LeavePressed():
                    self._left.set()
        self._draw()

    def _enter(self, text: str) -> None:
        try:
            self._conversation.send(text)
        except OverflowError as error:
            self._note(str(error))
            return
        self._listen(stop=True)
        self._print(f"{self._user}: {text}")

    def _listen(self, *, stop: bool = False) -> None:
        """Show that the server listens, and from when on it recalls."""
        if self._recalling is not None:
            self._recalling.cancel()
        if self._state == "away":
            return
        self._state, self._detail = "listening", ""
        if self._editor.draft.strip() and not stop:
            self._recalling = asyncio.get_running_loop().call_later(
                self._pause_s, lambda: self._lamp("recalling", "")
            )

    def _opened(self, opened: dict[str, Any]) -> None:
        self._loss_told = False
        if opened["resumed"]:
            self._lamp("listening", "")
            return
        name = opened["companion"]["name"]
        self._companion_name = name
        self._pause_s = opened["pause_ms"] / 1000
        if opened["model"] is None:
            self._note("No language model is configured: an offline voice quotes what it recalls.")
        for turn in opened["turns"][-6:]:
            self._print(f"{self._user if turn['speaker'] == 'user' else name}: {turn['text']}")
        if not opened["turns"]:
            self._print(f"{name}: {opened['companion']['greeting']}")
        self._lamp("listening", "")

    def _received(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "session.opened":
                self._opened(event)
            case "turn.stored":
                self._print(f"{self._companion_name}: {event['turn']['text']}")
            case "context.ready" if event["trigger"] != "send":
                if self._recalling is not None:
                    self._recalling.cancel()
                count, took = len(event["memories"]), event["timings"]["total_ms"]
                noun = "memory" if count == 1 else "memories"
                self._lamp("ready", f"ready, {count} {noun} in {took:.0f} ms")
            case "response.created":
                self._reply = event["response_id"]
            case "response.output_text.delta":
                self._speak(event["delta"])
            case "response.done":
                self._finish(event)
            case "error":
                self._note(event["error"]["message"])

    def _speak(self, words: str) -> None:
        if not self._speaking:
            self._write(f"\r\x1b[K{self._companion_name}: ")
            self._speaking = True
        self._write(harmless(words).replace("\n", "\r\n"))

    def _finish(self, done: dict[str, Any]) -> None:
        self._reply = None
        if self._speaking:
            self._speaking = False
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
        # While the companion speaks its words own the last line; the draft comes back after.
        if not self._speaking:
            width = shutil.get_terminal_size().columns
            self._write(prompt_line(self._state, self._detail, self._editor.draft, width))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


@contextlib.contextmanager
def _raw_keyboard() -> Iterator[None]:
    """Read single keys, and put the terminal back as it was."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
