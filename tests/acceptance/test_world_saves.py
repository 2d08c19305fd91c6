"""Saves, rollbacks and branches, against a model that copies everything.

Worlds are drawn at random from their number. The model keeps of each world, saved moment and
branch a copy of what happened with who witnessed it. A prompt is right if it is the one that a new
world gives which was told just that. `pytest tests/acceptance/test_world_saves.py --effort 10`
plays more.
"""

import asyncio
import copy
import difflib
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foremind.app.core import build_eraser, build_world_eraser
from tests.acceptance.hosting import Host, hosting, put_minds
from tests.conftest import StartServer

WORLDS = 6  # with an effort of 1
_STEPS = 24
_SHARED, _PRIVATE = ("mara", "jon", "edda"), ("tock",)
_PLAYERS = ("ana", "bo")
_PLACES = {"tavern": "the tavern", "cellar": "", "harbour": "the harbour"}
_SAVES = ("dusk", "dawn", "autosave")
_TEXTS = (
    "The well behind the mill is dry", "My dog Biscuit ran away", "A window broke",
    "The key to the cellar is under the mat", "I owe Klara seven coins", "It thundered twice",
    "The bridge to Porto has fallen", "I saw a wolf at the harbour", "Nobody has paid for the ale",
    "My brother Tom is a baker in Leeds", "The harvest was poor", "I live in Lisbon",
)  # fmt: skip
_DRAFTS = ("", "What of the well?", "Where is Biscuit?", "Who has the key?", "I live in Porto")


@dataclass(frozen=True)
class Told:
    """What happened, and who witnessed it; `players` were in the scene."""

    uid: int
    body: dict[str, Any]
    at: datetime
    place: str
    players: tuple[str, ...]
    witnesses: tuple[str, ...]
    retells: int | None


@dataclass
class Copied:
    """A world as the model has it."""

    time: datetime
    scenes: dict[str, dict[str, Any]] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    used: set[str] = field(default_factory=set)  # ids, also of what is forgotten


class Game:
    """A game server with several worlds, and the model of each."""

    def __init__(self, host: Host, draw: random.Random, number: int) -> None:
        self.host = host
        self.draw = draw
        self.number = number
        self.worlds: dict[str, Copied] = {}
        self.saves: dict[tuple[str, str], Copied] = {}
        self.done: list[str] = []
        self.uids = 0
        self.fresh = 0

    async def begin(self, name: str, time: datetime) -> None:
        """Begin a world with scenes."""
        self.worlds[name] = Copied(time)
        self.host.world = name
        await self.host.request("PUT", json={"clock": {"time": time.isoformat(), "factor": 0}})
        for scene in _PLACES:
            await self.enter(name, scene)

    # What may happen

    async def enter(self, name: str, scene: str = "") -> None:
        """Somebody enters and leaves."""
        scene = scene or self.draw.choice(list(_PLACES))
        body = {
            "place": _PLACES[scene],
            "players": [name for name in _PLAYERS if self.draw.random() < 0.6],
            "minds": [name for name in (*_SHARED, *_PRIVATE) if self.draw.random() < 0.6],
        }
        self.host.world = name
        await self.host.request("PUT", f"/scenes/{scene}", body)
        self.worlds[name].scenes[scene] = body

    async def happen(self, name: str) -> None:
        """Something is said or done, some of it twice."""
        events = [self._event(name) for _ in range(self.draw.choice((1, 1, 2, 5)))]
        self.host.world = name
        stored = await self.host.report(*events)
        assert not [event for event in stored if event["duplicate"]]
        if self.draw.random() < 0.3:
            again = self.draw.choice(sorted(self.worlds[name].used))
            (one,) = await self.host.report({"id": again, "type": "event", "text": "Never"})
            assert one["duplicate"]

    def _event(self, name: str) -> dict[str, Any]:
        """Draw an event, and add it to the model."""
        draw, world = self.draw, self.worlds[name]
        self.uids += 1
        scene = draw.choice(list(_PLACES))
        there = world.scenes[scene]
        present = [*there["players"], *there["minds"]]
        actor = draw.choice([*present, ""]) if present else ""
        body: dict[str, Any] = {
            # After a rollback, the same ids are used again.
            "id": f"e{len(world.used) + 1}",
            "type": "said" if actor and draw.random() < 0.8 else "event",
            "text": f"{draw.choice(_TEXTS)}, {self.uids}",
            "scene": scene,
            "actor": actor or None,
        }
        speech = body["type"] == "said"
        to = draw.choice(present) if present and draw.random() < 0.4 else None
        body["to"] = to if speech and to != actor else None
        witnesses = present
        if speech and body["to"] and draw.random() < 0.5:
            body["volume"] = "whisper"
            witnesses = [to]
        if draw.random() < 0.2:
            body["audience"] = witnesses = draw.sample((*_SHARED, *_PRIVATE), 2)
        retold = draw.choice(world.told) if world.told and speech and draw.random() < 0.3 else None
        if retold is not None:
            body["retells"] = retold.body["id"]
        told = Told(
            self.uids,
            body,
            world.time,
            there["place"],
            tuple(there["players"]),
            tuple(sorted({*witnesses, *([actor] if actor else [])})),
            None if retold is None else retold.uid,
        )
        world.told.append(told)
        world.used.add(body["id"])
        return body

    async def pass_time(self, name: str) -> None:
        """Time passes."""
        world = self.worlds[name]
        world.time += timedelta(hours=self.draw.randrange(1, 100))
        self.host.world = name
        await self.host.request("PUT", json={"clock": {"time": world.time.isoformat()}})

    async def save(self, name: str) -> None:
        """Save; a name may be used again."""
        save = self.draw.choice(_SAVES)
        self.done[-1] += f" {save}"
        await self._while_asked(name, "POST", "/saves", {"name": save})
        self.saves[name, save] = copy.deepcopy(self.worlds[name])

    async def roll_back(self, name: str) -> None:
        """Go on from any saved moment."""
        saves = sorted(save for world, save in self.saves if world == name)
        if not saves:
            return
        save = self.draw.choice(saves)
        self.done[-1] += f" {save}"
        after = copy.deepcopy(self.saves[name, save])
        await self._while_asked(name, "POST", "/rollback", {"name": save}, after)
        self.worlds[name] = after

    async def branch(self, name: str) -> None:
        """Begin another world at a saved moment."""
        saves = sorted(save for world, save in self.saves if world == name)
        if not saves or len(self.worlds) > 3:
            return
        save, branch = self.draw.choice(saves), f"w{self.number}-{len(self.worlds)}"
        self.done[-1] += f" {save} {branch}"
        await self._while_asked(name, "POST", "/branches", {"save": save, "world": branch})
        self.worlds[branch] = copy.deepcopy(self.saves[name, save])

    async def delete_save(self, name: str) -> None:
        """No longer go on from a saved moment."""
        saves = sorted(save for world, save in self.saves if world == name)
        if saves:
            save = self.draw.choice(saves)
            self.done[-1] += f" {save}"
            await self._while_asked(name, "DELETE", f"/saves/{save}", None)
            del self.saves[name, save]

    async def delete_abandoned(self, name: str) -> None:
        """What was undone is deleted while minds are asked."""
        core = self.host.server.app.core
        self.host.world = name
        await asyncio.gather(
            build_world_eraser(core, build_eraser(core)).delete_abandoned(), self.ask(name)
        )

    async def forget(self, name: str) -> None:
        """Everybody forgets something, in every copy that shares it."""
        if not self.worlds[name].told:
            return
        gone = self.draw.choice(self.worlds[name].told)
        self.done[-1] += f" {gone.body['id']}"
        await self._while_asked(name, "DELETE", f"/events/{gone.body['id']}", None, unsure=True)
        for world in (*self.worlds.values(), *self.saves.values()):
            uids = {gone.uid}
            kept = []
            for told in world.told:
                if told.uid in uids or told.retells in uids:
                    uids.add(told.uid)
                else:
                    kept.append(told)
            world.told = kept

    async def ask(self, name: str) -> None:
        """Ask some minds, several at once."""
        self.host.world = name
        await asyncio.gather(*(self._prompt(*self._question()) for _ in range(3)))

    # What is right

    async def _while_asked(
        self,
        name: str,
        method: str,
        path: str,
        body: Any,
        after: Copied | None = None,
        *,
        unsure: bool = False,
    ) -> None:
        """Change a world while minds are asked, which know what holds before or after."""
        before = copy.deepcopy(self.worlds[name])
        questions = [self._question() for _ in range(self.draw.choice((0, 0, 2, 4)))]
        self.host.world = name
        _, *prompts = await asyncio.gather(
            self.host.request(method, path, body),
            *(self._prompt(*question) for question in questions),
        )
        if prompts and not unsure:
            right = [await self._expected(world, questions) for world in (before, after) if world]
            for number, prompt in enumerate(prompts):
                known = [prompts[number] for prompts in right]
                assert prompt in known, self._wrong(questions[number], prompt, known[0])

    async def check(self, name: str) -> None:
        """Assert that every mind of a world is given what it is to know, and nothing else."""
        questions = [(mind, self.draw.choice(_DRAFTS), "") for mind in _SHARED]
        questions += [
            (mind, self.draw.choice(_DRAFTS), player) for mind in _PRIVATE for player in _PLAYERS
        ]
        expected = await self._expected(self.worlds[name], questions)
        self.host.world = name
        for question, right in zip(questions, expected, strict=True):
            prompt = await self._prompt(*question)
            assert prompt == right, self._wrong(question, prompt, right)

    def _wrong(self, question: tuple[str, str, str], prompt: str, right: str) -> str:
        """Say what is wrong with a prompt, and how it came about."""
        lines = difflib.unified_diff(right.splitlines(), prompt.splitlines(), lineterm="")
        return "\n".join([f"world {self.number}: {question}", *self.done, *lines])

    async def _expected(self, world: Copied, questions: list[tuple[str, str, str]]) -> list[str]:
        """Return the prompts of a new world that was told what a world was."""
        self.fresh += 1
        self.host.world = f"fresh {self.number} {self.fresh}"
        await self.host.request(
            "PUT",
            json={"clock": {"time": datetime(1203, 1, 1, tzinfo=UTC).isoformat(), "factor": 0}},
        )
        for place, players in {(told.place, told.players) for told in world.told}:
            scene = f"{place}, {players}"
            await self.host.scene(scene, players=list(players), minds=[], place=place)
        events = [
            told.body
            | {
                "scene": f"{told.place}, {told.players}",
                "audience": told.witnesses,
                "at": told.at.isoformat(),
            }
            for told in world.told
        ]
        if events:
            await self.host.report(*events)
        await self.host.request("PUT", json={"clock": {"time": world.time.isoformat()}})
        for scene, body in world.scenes.items():
            await self.host.request("PUT", f"/scenes/{scene}", body)
        prompts = [await self._prompt(*question) for question in questions]
        await self.host.request("DELETE")
        return prompts

    def _question(self) -> tuple[str, str, str]:
        mind = self.draw.choice((*_SHARED, *_PRIVATE))
        player = self.draw.choice(_PLAYERS) if mind in _PRIVATE else ""
        return mind, self.draw.choice(_DRAFTS), player

    async def _prompt(self, mind: str, draft: str, player: str) -> str:
        return await self.host.prompt(mind, draft, player)


@pytest.mark.timeout(3600)
async def test_saves_are_as_if_everything_were_copied(start: StartServer, effort: int) -> None:
    """Nothing of an undone future is recalled, and nothing is missing; also if asked meanwhile."""
    server = await start(working_tokens=20)
    await put_minds(server, *_PRIVATE, mind="player")
    async with hosting(server, *_SHARED) as host:
        for number in range(WORLDS * effort):
            game = Game(host, random.Random(f"world {number}"), number)
            await game.begin(f"w{number}-0", datetime(1203, 5, 1, 12, tzinfo=UTC))
            steps = (game.happen, game.enter, game.ask, game.save, game.roll_back, game.branch,
                     game.forget, game.delete_save, game.delete_abandoned, game.pass_time,
                     game.check)  # fmt: skip
            for step in game.draw.choices(steps, (6, 2, 3, 3, 3, 1, 1, 1, 1, 1, 0.5), k=_STEPS):
                name = game.draw.choice(sorted(game.worlds))
                game.done.append(f"{step.__name__} {name}")
                await step(name)
            for name in game.worlds:
                await game.check(name)
