"""Which voice a companion has: its own model server, the server's, or none."""

import os
from typing import TYPE_CHECKING

from foremind.companions import Companion, CompanionSettings
from foremind.generation.offline import OfflineVoice
from foremind.generation.slots import Slots
from foremind.generation.voice import Voice
from foremind.settings import Ahead, Settings

if TYPE_CHECKING:
    from foremind.generation.model_server import ModelServer, ModelServerOptions


class Voices:
    """Holds one client for each distinct model server; companions are few, so are these."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._offline = OfflineVoice()
        self._servers: dict[ModelServerOptions, ModelServer] = {}
        self._slots: dict[str, Slots] = {}  # by the server's address

    async def close(self) -> None:
        """Close every client."""
        for server in self._servers.values():
            await server.close()
        self._servers.clear()

    def model_of(self, companion: Companion) -> str:
        """Name the model that a companion's context is made for; `offline` without one."""
        if not (companion.settings.llm_url or self._settings.llm_url):
            return "offline"
        return companion.settings.llm_model or self._settings.llm_model

    def voice_of(self, companion: Companion) -> Voice:
        """Return the companion's voice."""
        return self.server_of(companion.settings) or self._offline

    def server_of(self, own: CompanionSettings) -> "ModelServer | None":
        """Return the client of the model server that a companion's settings name, if any."""
        server = self._settings
        url = own.llm_url or server.llm_url
        if not url:
            return None
        # The library takes over a second to import, and a server without a model never needs it.
        from foremind.generation.model_server import (  # noqa: PLC0415
            ModelServer,
            ModelServerOptions,
        )

        options = ModelServerOptions(
            url=url,
            model=own.llm_model or server.llm_model,
            key=self._key(own),
            max_tokens=own.llm_max_tokens or server.llm_max_tokens,
            temperature=(
                server.llm_temperature if own.llm_temperature is None else own.llm_temperature
            ),
            connect_timeout_s=server.llm_connect_timeout_s,
            token_timeout_s=server.llm_token_timeout_s,
            reply_timeout_s=server.llm_reply_timeout_s,
        )
        if options not in self._servers:
            slots = self._slots.setdefault(url, Slots(server.llm_slots))
            self._servers[options] = ModelServer(options, slots)
        return self._servers[options]

    def ahead_of(self, own: CompanionSettings) -> "tuple[ModelServer | None, Ahead]":
        """Return a companion's model server, and what it may do before Enter."""
        return self.server_of(own), own.llm_ahead or self._settings.llm_ahead

    def _key(self, own: CompanionSettings) -> str | None:
        if own.llm_key_env:
            return os.environ.get(own.llm_key_env)
        # The server's key goes to the server's own URL, never to a companion's other one.
        own_url = own.llm_url
        if self._settings.llm_key is None or (own_url and own_url != self._settings.llm_url):
            return None
        return self._settings.llm_key.get_secret_value()
