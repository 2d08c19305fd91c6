"""A game server that hosts a tavern: two players and a character in one scene of a world.

It says who is where, reports what happens, passes on what players say, and prints what is answered:

    FOREMIND_AUTH_SECRET=... foremind serve
    FOREMIND_AUTH_SECRET=... python examples/tavern_host.py
"""

import json
import os
import sys
import time
import urllib.parse
import urllib.request
from typing import Any

import jwt

WORLD, SCENE, CHARACTER = "vale", "tavern", "wren"


class WorldHost:
    """A game server's requests on its world; every one has a fresh token.

    Args:
        url: the Foremind server's, over HTTP.
        secret: the Foremind server's FOREMIND_AUTH_SECRET; it never leaves the game server.
    """

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._secret = secret

    def put(self, path: str, body: dict[str, Any]) -> Any:
        """Change the world, or a scene of it."""
        return self._request("PUT", f"/v1/worlds/{WORLD}{path}", body)

    def report(self, *events: dict[str, Any]) -> None:
        """Report what happens in the scene; the same `id` again changes nothing."""
        scene = [{"scene": SCENE} | event for event in events]
        self._request("POST", f"/v1/worlds/{WORLD}/events", {"events": scene})

    def say(self, message_id: str, player: str, text: str, **how: Any) -> list[dict[str, str]]:
        """Let a player say something; return what is answered, by whom."""
        body = {"id": message_id, "user": player, "text": text, "world": WORLD, "scene": SCENE}
        answered = self._request("POST", "/v1/turns", body | how)
        replies: list[dict[str, str]] = answered["replies"]
        return replies

    def known(self, player: str, draft: str) -> str:
        """Return what the character's model would be given if the player said something."""
        query = urllib.parse.urlencode({"player": player, "draft": draft})
        path = f"/v1/worlds/{WORLD}/minds/{CHARACTER}/context?{query}"
        messages = self._request("GET", path)["messages"]
        return "\n".join(message["content"] for message in messages)

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        now = int(time.time())
        claims = {
            "sub": "tavern-host",
            "iat": now,
            "exp": now + 60,
            "worlds": [WORLD],
            "scopes": ["world", "host", "chat", "memory:read"],
        }
        request = urllib.request.Request(  # noqa: S310 - the server is the operator's own
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {
                "authorization": f"Bearer {jwt.encode(claims, self._secret, algorithm='HS256')}",
                "content-type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(request, timeout=150) as response:  # noqa: S310
            return json.load(response)


def main() -> None:
    """Open the tavern; one player whispers something that the other must not learn."""
    url = os.environ.get("FOREMIND_URL", "http://127.0.0.1:8770")
    host = WorldHost(url, os.environ["FOREMIND_AUTH_SECRET"])
    host.put("", {"clock": {"time": "1203-05-01T18:00:00Z", "factor": 20}})
    everybody = {"place": "the tavern", "players": ["ana", "bo"], "minds": [CHARACTER]}
    host.put(f"/scenes/{SCENE}", everybody)
    host.report({"id": "e1", "type": "event", "text": "The bridge over the Corgo collapsed"})
    for message_id, player, text, how in (
        ("m1", "ana", "Did you hear that?", {}),
        ("m2", "ana", "I hid the map under the mill", {"to": CHARACTER, "volume": "whisper"}),
        ("m3", "bo", "What happened to the bridge?", {"to": CHARACTER}),
    ):
        for reply in host.say(message_id, player, text, **how):
            print(f"[{player}] {reply['companion']}: {reply['text']}")
    for player in ("ana", "bo"):
        prompt = host.known(player, "Where is the map?")
        print(f"{CHARACTER} with {player} knows of the map: {'under the mill' in prompt}")


if __name__ == "__main__":
    if "FOREMIND_AUTH_SECRET" not in os.environ:
        sys.exit("Set FOREMIND_AUTH_SECRET to the same secret as the server's.")
    main()
