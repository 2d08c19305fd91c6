"""What a world forgets cannot be told from what never happened, in any mind.

A world and its twin live the same, which is drawn at random from a number: only in one of them
secrets are told, by a player who is not in the other one, passed on, saved and branched. Then they
are forgotten: one by one, by their time, by their player, or with their player. `pytest
tests/acceptance/test_world_forgetting.py --effort 10` runs more lives.
"""

import asyncio
import difflib
import random
from typing import Any

import pytest

from tests.acceptance.hosting import Host, hosting, put_minds
from tests.acceptance.traces import objects_containing, stored_text
from tests.conftest import RunningServer, StartServer, eventually, owner_of

LIVES = 6  # with an effort of 1
_SHARED, _PRIVATE = ("mara", "jon", "edda"), ("tock",)
_MINDS = (*_SHARED, *_PRIVATE)
_PLACES = {"tavern": "the tavern", "harbour": "the harbour"}
_TEXTS = (
    "The well behind the mill is dry", "My dog Biscuit ran away", "A window broke",
    "The key to the cellar is under the mat", "I owe Klara seven coins", "It thundered twice",
    "Nobody has paid for the ale", "My brother Tom is a baker in Leeds", "I live in Lisbon",
)  # fmt: skip
_SECRETS = (
    "The zither number {} lies under the old mill", "I live in the house with {} zithers",
    "My zither has broken {} times", "Zed has sold the zither for {} silver coins",
)  # fmt: skip
_DRAFTS = ("", "What of the well?", "Where is Biscuit?", "Who has the key?", "What lies in Lisbon?")


class Twins:
    """A world in which secrets are told, and its twin; `suffix` is that of the names of worlds."""

    def __init__(self, server: RunningServer, host: Host, draw: random.Random, suffix: str) -> None:
        self.server = server
        self.host = host
        self.draw = draw
        self.worlds = [f"world{suffix}"]  # with their branches
        self.scenes: dict[str, dict[str, dict[str, Any]]] = {}
        self.saved: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self.happened: dict[str, list[str]] = {self.worlds[0]: []}  # ids in the past of each world
        self.secrets: dict[str, list[str]] = {self.worlds[0]: []}
        self.used: dict[str, int] = {self.worlds[0]: 0}
        self.at_save: dict[tuple[str, str], tuple[list[str], list[str], int]] = {}
        self.number = 0
        self.done: list[str] = []

    async def both(self, world: str, method: str, path: str, body: Any = None) -> None:
        """Send a request on a world, and on its twin."""
        for name in (world, f"twin of {world}"):
            changed = body
            if body and "world" in body and name != world:
                changed = body | {"world": f"twin of {body['world']}"}
            self.host.world = name
            await self.host.request(method, path, changed)

    async def begin(self) -> None:
        """Begin the worlds."""
        (world,) = self.worlds
        await self.both(world, "PUT", "", {"clock": {"time": "1203-05-01T12:00:00Z", "factor": 0}})
        self.scenes[world] = {}
        for scene in _PLACES:
            await self.enter(world, scene)

    # What both live

    async def live(self) -> None:
        """Much happens in either, among it secrets in one."""
        steps = (self.happen, self.tell_secret, self.enter, self.ask, self.save, self.roll_back,
                 self.branch)  # fmt: skip
        drawn = self.draw.choices(steps, (4, 4, 1, 3, 2, 2, 1), k=12)
        for step in (self.tell_secret, *drawn):
            world = self.draw.choice(self.worlds)
            self.done.append(f"{step.__name__} {world}")
            await step(world)

    async def enter(self, world: str, scene: str = "") -> None:
        """Somebody enters and leaves; Zed is in one of the worlds only."""
        scene = scene or self.draw.choice(list(_PLACES))
        players = [name for name in ("ana", "bo") if self.draw.random() < 0.7]
        minds = [name for name in _MINDS if self.draw.random() < 0.7]
        body = {"place": _PLACES[scene], "players": players, "minds": minds}
        self.scenes[world][scene] = body
        self.host.world = f"twin of {world}"
        await self.host.request("PUT", f"/scenes/{scene}", body)
        self.host.world = world
        await self.host.request("PUT", f"/scenes/{scene}", body | {"players": [*players, "zed"]})

    async def happen(self, world: str) -> None:
        """Something is said or done."""
        events = []
        for _ in range(self.draw.choice((1, 2, 5))):
            scene = self.draw.choice(list(_PLACES))
            there = self.scenes[world][scene]
            actor = self.draw.choice([*there["players"], *there["minds"], ""])
            event = self._event(world, scene, actor, f"{self.draw.choice(_TEXTS)}, {self.number}")
            if self.draw.random() < 0.3 and self.happened[world] and actor:
                event["retells"] = self.draw.choice(self.happened[world])
            self.happened[world].append(event["id"])
            events.append(event)
        await self.both(world, "POST", "/events", {"events": events})

    def _event(self, world: str, scene: str, actor: str, text: str) -> dict[str, Any]:
        self.number += 1
        self.used[world] += 1  # after a rollback, the same ids are used again
        there = self.scenes[world][scene]
        present = [*there["players"], *there["minds"]]
        event: dict[str, Any] = {
            "id": f"e{self.used[world]}",
            "type": "said" if actor and self.draw.random() < 0.8 else "event",
            "text": text,
            "scene": scene,
            "actor": actor or None,
        }
        if actor and present and self.draw.random() < 0.4:
            event["to"] = self.draw.choice(present)
            event["volume"] = self.draw.choice(("whisper", "say", "shout"))
        return event

    async def ask(self, world: str) -> None:
        """Some minds are asked, in one of the worlds or both."""
        await asyncio.gather(*(self._asked(name) for name in (world, f"twin of {world}")))

    async def _asked(self, world: str) -> None:
        for mind in self.draw.sample(_MINDS, self.draw.randrange(len(_MINDS))):
            await self._prompt(
                world, mind, self.draw.choice(_DRAFTS), self.draw.choice(("ana", "bo"))
            )

    async def save(self, world: str) -> None:
        """Both are saved."""
        save = self.draw.choice(("dusk", "dawn"))
        await self.both(world, "POST", "/saves", {"name": save})
        self.saved[world, save] = dict(self.scenes[world])
        happened, secrets = list(self.happened[world]), list(self.secrets[world])
        self.at_save[world, save] = happened, secrets, self.used[world]

    def _any_save(self, world: str) -> str | None:
        saves = sorted(save for name, save in self.saved if name == world)
        return self.draw.choice(saves) if saves else None

    async def roll_back(self, world: str) -> None:
        """Both are rolled back."""
        if save := self._any_save(world):
            await self.both(world, "POST", "/rollback", {"name": save})
            self._continue(world, world, save)

    async def branch(self, world: str) -> None:
        """Both are branched."""
        if (save := self._any_save(world)) and len(self.worlds) < 3:
            name = f"{self.worlds[0]}-{len(self.worlds)}"
            await self.both(world, "POST", "/branches", {"save": save, "world": name})
            self.worlds.append(name)
            self._continue(name, world, save)

    def _continue(self, name: str, world: str, save: str) -> None:
        self.scenes[name] = dict(self.saved[world, save])
        happened, secrets, self.used[name] = self.at_save[world, save]
        self.happened[name], self.secrets[name] = list(happened), list(secrets)

    # What one of them does

    async def tell_secret(self, world: str) -> None:
        """A secret is told by Zed, or to Zed; or one is passed on by anybody."""
        scene = self.draw.choice(list(_PLACES))
        minds = self.scenes[world][scene]["minds"]
        passed_on = self.secrets[world] and minds and self.draw.random() < 0.5
        actor = self.draw.choice(minds) if passed_on else "zed"
        event = self._event(world, scene, actor, self.draw.choice(_SECRETS).format(self.number))
        if passed_on:
            event |= {"type": "said", "retells": self.draw.choice(self.secrets[world])}
        elif minds and self.draw.random() < 0.3:
            event |= {"type": "said", "actor": self.draw.choice(minds), "to": ["zed"]}
        self.secrets[world].append(event["id"])
        self.host.world = world
        await self.host.report(event | {"at": "1199-01-01T00:00:00Z"})

    async def forget(self) -> None:
        """Everybody forgets the secrets, in whichever way, perhaps while minds are asked."""
        way = self.draw.choice(("id", "time", "player", "user"))
        self.done.append(f"forget by {way}")
        asked = [self._asked(world) for world in self.worlds if self.draw.random() < 0.5]
        await asyncio.gather(getattr(self, f"_by_{way}")(), *asked)
        for known in (self.secrets, {key: known[1] for key, known in self.at_save.items()}):
            for secrets in known.values():
                secrets.clear()

    async def _by_id(self) -> None:
        for world in self.worlds:
            self.host.world = world
            for secret in self.secrets[world]:
                receipt = await self.host.request("DELETE", f"/events/{secret}")
                assert secret in receipt["events"]
        await self._by_time()  # what happened in what was undone

    async def _by_time(self) -> None:
        for world in self.worlds:
            self.host.world = world
            query = {"from": "1198-12-31T00:00:00Z", "to": "1200-01-01T00:00:00Z"}
            await self.host.request("DELETE", "/events", query=query)

    async def _by_player(self) -> None:
        for world in self.worlds:
            self.host.world = world
            await self.host.request("DELETE", "/events", query={"player": "zed"})

    async def _by_user(self) -> None:
        response = await self.host.http.delete("/v1/users/zed", params={"user": "zed"})
        assert response.status_code == 200, response.text
        assert "zed" not in response.text

    # What is the same afterwards

    async def compare(self) -> None:
        """Assert that no mind can tell."""
        for world in self.worlds:
            for mind in _MINDS:
                draft, player = self.draw.choice(_DRAFTS), self.draw.choice(("ana", "bo"))
                told = await self._prompt(world, mind, draft, player)
                twin = await self._prompt(f"twin of {world}", mind, draft, player)
                lines = difflib.unified_diff(twin.splitlines(), told.splitlines(), lineterm="")
                assert told == twin, "\n".join([f"{world} {mind} {draft}", *self.done, *lines])

    async def _prompt(self, world: str, mind: str, draft: str, player: str) -> str:
        query = {"draft": draft, "player": player}
        response = await self.host.http.get(
            f"/v1/worlds/{world}/minds/{mind}/context", params=query
        )
        assert response.status_code == 200, response.text
        return "\n".join(said["content"] for said in response.json()["messages"])


@pytest.mark.timeout(3600)
async def test_what_is_forgotten_has_never_happened(start: StartServer, effort: int) -> None:
    """In prompts, tables and live objects; whoever witnessed it, passed it on, or was asked."""
    server = await start(working_tokens=20)
    await put_minds(server, *_PRIVATE, mind="player")
    async with hosting(server, *_SHARED) as host:
        for number in range(LIVES * effort):
            twins = Twins(server, host, random.Random(f"life {number}"), f"-{number}")
            await twins.begin()
            for _ in range(2):
                await twins.live()
                await twins.forget()
                await twins.compare()
                assert not await owner_of(server.app.core).fetch("SELECT * FROM events_to_forget")
            stored = await stored_text(server)
            at = stored.find("zither")
            assert at < 0, (stored[max(0, at - 300) : at + 100], twins.done)
            if twins.done[-1] == "forget by user":
                assert "zed" not in stored
        await eventually(lambda: not objects_containing("zither"))
