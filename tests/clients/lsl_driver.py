"""Runs the script in LSL: the arguments are the server's URL, options and commands as JSON.

What a region offers it is made here. Time does not pass: a timer only tells how long it would wait.
"""

import asyncio
import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import lummao

from tests.clients.turns_http import ask, tell

SCRIPT = Path(__file__).parents[2] / "clients" / "lsl" / "foremind.lsl"
_AVATAR = str(uuid.UUID(int=17))
_OBJECT = str(uuid.UUID(int=18))
_NOBODY = str(uuid.UUID(int=0))
_METHOD, _MIMETYPE, _BODY_MAXLENGTH, _CUSTOM_HEADER = 0, 1, 2, 5  # LSL's constants
_MOST_BODY_BYTES = 16_384
_REGION_TIMED_OUT = 499


def configured(url: str, token: str) -> str:
    """Return the script as someone who follows its comments would edit it."""
    source = SCRIPT.read_text("utf-8")
    for name, value in {"URL": url, "TOKEN": token}.items():
        source, changed = re.subn(
            rf'^string {name} = "[^"]*";', f'string {name} = "{value}";', source, flags=re.M
        )
        assert changed == 1
    return source


class Region:
    """A script and what it calls."""

    def __init__(self, source: str, throttled: int) -> None:
        self._script = lummao.compile_script(source)
        self._throttled = throttled  # requests that are refused first
        self._timer: float = 0
        for name, act in {
            "llHTTPRequest": self._request,
            "llSetTimerEvent": self._set_timer,
            "llListen": lambda *_: 1,
            "llSay": lambda _, text: tell(said=text, bytes=len(text.encode())),
            "llRegionSayTo": lambda *heard: tell(told=heard[-1]),
            "llOwnerSay": self._tell_owner,
            "llGetOwnerKey": lambda _: lummao.Key(_AVATAR),  # also of the object
        }.items():
            self._script.builtin_funcs[name] = act

    def hear(self, speaker: str, text: str) -> None:
        """Let an avatar or an object say something."""
        self._script.queue_event("listen", (0, "Ana", lummao.Key(speaker), text))

    async def run(self) -> None:
        """Let the script do all that it can."""
        await self._script.execute()
        while self._timer:
            tell(waited=self._timer)
            self._script.queue_event("timer", ())
            await self._script.execute()

    def _set_timer(self, seconds: float) -> None:
        self._timer = seconds

    def _tell_owner(self, text: str) -> None:
        tell(failed=text.removeprefix("Foremind: a message was not answered: "))

    def _request(self, url: str, options: list[Any], body: str) -> Any:
        if self._throttled:
            self._throttled -= 1
            return lummao.Key(_NOBODY)
        given: dict[int, Any] = {_BODY_MAXLENGTH: 2048}
        headers = {}
        left = list(options)
        while left:
            option = left.pop(0)
            if option == _CUSTOM_HEADER:
                name = left.pop(0)
                headers[name] = left.pop(0)
            else:
                given[option] = left.pop(0)
        headers["content-type"] = given[_MIMETYPE]
        length = given[_BODY_MAXLENGTH]
        assert length <= _MOST_BODY_BYTES
        request = lummao.Key(str(uuid.uuid4()))
        try:
            answer = ask(given[_METHOD], url, headers, body)
            status, told = answer.status, answer.body[:length].decode(errors="ignore")
        except OSError:
            status, told = _REGION_TIMED_OUT, ""
        self._script.queue_event("http_response", (request, status, [], told))
        return request


async def main(url: str, options: dict[str, Any], commands: list[dict[str, Any]]) -> None:
    """Let avatars speak: each `ask` after the last is answered, those of `together` at once."""
    source = configured(url, options.get("token", ""))
    region = Region(source, options.get("throttled", 0))
    await region.run()
    for command in commands:
        texts = command.get("together") or [command.get("ask") or command["object"]]
        for text in texts:
            region.hear(_OBJECT if "object" in command else _AVATAR, text)
        await region.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])))
