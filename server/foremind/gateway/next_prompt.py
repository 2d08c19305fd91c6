"""The next prompt of a session, prefilled while nobody waits: all of it but its last message.

A reply waits for the model to read what changed since the last one: the exchange itself, and layers
that background work has rewritten. A server whose tokens cost nothing reads that between two
messages instead.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from foremind.domain.errors import ForemindError
from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.prompt.layout import Message
from foremind.runtime.supervision import TaskSet

_log = structlog.get_logger("foremind.gateway")


class NextPrompt:
    """Tells a session's model server which prompt to expect; assembles one at a time.

    Args:
        server: returns the current model server, None without one.
        assemble: assembles the part of the next prompt that does not depend on its message; empty
            if that is not known.
    """

    def __init__(
        self,
        server: Callable[[], OpenAIChatModel | None],
        assemble: Callable[[], Awaitable[Sequence[Message]]],
    ) -> None:
        self._server = server
        self._assemble = assemble
        self._expected: Sequence[Message] = ()
        self._outdated = False
        self._drops = 0
        self._closed = False
        self._updating = False
        self._tasks = TaskSet()  # at most one

    def on_conversation(self) -> None:
        """The session was opened, or a reply ended."""
        server = self._server()
        if server is not None and server.options.self_hosted and not self._closed:
            self._outdated = True
            if not self._updating:
                self._updating = True
                self._tasks.begin(self._update(), "next-prompt")

    def on_layers(self) -> None:
        """A layer changed: update the prompt, unless the server has worked for others since."""
        server = self._server()
        if server is not None and self._expected and server.expects(self._expected):
            self.on_conversation()

    def drop(self) -> None:
        """Drop the prompt, also one being assembled: it may contain erased text."""
        server = self._server()
        if server is not None and self._expected and server.expects(self._expected):
            server.expect(())
        self._expected = ()
        self._outdated = False
        self._drops += 1

    async def close(self) -> None:
        """Drop the prompt, and wait until none is being assembled."""
        self._closed = True
        self.drop()
        await self._tasks.stop()

    async def _update(self) -> None:
        try:
            while self._outdated:
                self._outdated = False
                drops = self._drops
                messages = await self._assemble()
                server = self._server()
                if messages and server is not None and drops == self._drops:
                    self._expected = messages
                    server.expect(messages)
        except ForemindError as error:  # the next reply then waits for all of it
            _log.info("next_prompt.not_assembled", reason=error.code)
        finally:
            self._updating = False
