"""Worlds that are drawn at random and lived twice, with another text of one event.

Players and characters come and go, talk, whisper, shout and pass things on; a world is saved and
rolled back, asked between, and served by two processes. Whoever has not witnessed that event must
not be able to tell: prompts and logs are the same to the last byte. This lives many worlds, and
writes what it found to `loadtests/results/noninterference.json`:

    make lives WORLDS=10000
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from math import dist
from pathlib import Path
from typing import Any

import httpx2

from foremind.app.configuration import load_settings
from foremind.app.core import build_background_worker
from foremind.cli.running import run
from foremind.domain.relationship import relationship_id_of
from foremind.domain.world import log_of, player_account
from foremind.llm.model_selection import ChatModels
from foremind.runtime.logs import configure_logging
from foremind.storage.embedded_postgres import embedded_postgres
from foremind.storage.migrations import migrate
from foremind_eval.doubles.manual_clock import ManualClock
from tests.acceptance.hosting import Host, put_minds
from tests.conftest import (
    MEMORY,
    PATIENCE,
    ROOT,
    RunningServer,
    StartServer,
    make_disposable,
    patient_settings,
    starting,
)
from tests.watchdog import Watchdog

_RESULT = ROOT / "loadtests" / "results" / "noninterference.json"
_CHUNK = 250  # worlds that are lived in one database
SHARED = ("mara", "jon", "edda", "tove", "ulf", "runa")  # one mind for everybody
PRIVATE = ("pia", "kai")  # one for each player
PLAYERS = ("ana", "ben", "cem", "dina", "eli", "fay")
PLACES = ("tavern", "mill", "harbour")
RANGES = {"whisper": 2.0, "say": 20.0, "shout": 60.0}
THINGS = ("lantern", "ferry", "red horse", "old key", "bridge", "treasure")
SAYINGS = (
    "Have you seen the {}?", "The {} is gone since last week", "I sold the {} to a stranger",
    "Nobody should know of the {}", "Let us meet at the {} tomorrow", "The {}. Again the {}!",
)  # fmt: skip
SIGHTS = ("The {} fell over", "Smoke rises beyond the {}", "Somebody moved the {}")
SECRETS = (
    "The {} lies under the old mill", "I am going to steal the {} tomorrow night, with the lantern",
    "Psst", "Mara told you that the {} burned\nben: I did it", "My name is not what you think. {}!",
)  # fmt: skip

Mind = tuple[str, str]  # a character, and the player whose mind it is; "" for everybody's


@dataclass
class Place:
    """A scene as the test knows it."""

    players: list[str] = field(default_factory=list)
    minds: list[str] = field(default_factory=list)
    positions: dict[str, list[float]] = field(default_factory=dict)

    @property
    def everybody(self) -> list[str]:
        return [*self.players, *self.minds]


@dataclass
class Script:
    """What is done in a world, in order, with "SECRET" for the text of one event.

    `knowing` are the minds that know that in the end, `players` the players who do: who witnessed
    it, unless it was undone.
    """

    steps: list[tuple[Any, ...]] = field(default_factory=list)
    minds: list[Mind] = field(default_factory=list)
    knowing: set[Mind] = field(default_factory=set)
    players: set[str] = field(default_factory=set)
    secrets: tuple[str, str] = ("", "")


class Author:
    """Draws the script of a world from a number."""

    def __init__(self, number: int) -> None:
        self._draw = random.Random(number)
        self._script = Script()
        self._players = PLAYERS[: self._draw.randint(2, 6)]
        private = PRIVATE[: self._draw.choice((0, 0, 0, 1, 1, 2))]
        shared = SHARED[: self._draw.choice((2, 2, 3, 3, 4, 6))]
        self._minds = (*shared, *private)
        self._places = {place: Place() for place in PLACES[: self._draw.randint(1, 3)]}
        self._events: list[str] = []
        self._saves: dict[str, tuple[Any, ...]] = {}

    def write(self) -> Script:
        script, draw = self._script, self._draw
        owners = draw.sample(self._players, 2)
        script.minds = [(mind, "") for mind in self._minds if mind in SHARED]
        script.minds += [
            (mind, owner) for mind in self._minds if mind in PRIVATE for owner in owners
        ]
        thing = draw.choice(THINGS)
        one, other = draw.sample(SECRETS, 2)
        script.secrets = one.format(thing), other.format(draw.choice(THINGS))
        for place in self._places:
            self._move(place)
        steps = draw.randint(6, 10)
        secret_at = draw.randint(1, steps - 3)
        for number in range(steps):
            if number == secret_at:
                self._happen(secret=True)
            self._do_something()
        # Of those who know it, one is enough to see that it would be noticed.
        knowing = sorted(script.knowing.intersection(script.minds))
        for mind in script.minds:
            if mind not in knowing[1:]:
                self._ask(mind, f"What do you know of the {thing}?")
        return script

    def _do_something(self) -> None:
        (act,) = self._draw.choices(
            (self._happen, self._move_somebody, self._ask_somebody, self._work, self._switch,
             self._wait, self._save, self._roll_back),
            (8, 4, 2, 1, 2, 1, 1, 1),
        )  # fmt: skip
        act()

    def _happen(self, *, secret: bool = False) -> None:
        draw = self._draw
        place = draw.choice(list(self._places))
        scene = self._places[place]
        event: dict[str, Any] = {"id": f"e{len(self._script.steps)}", "scene": place}
        if not scene.everybody or draw.random() < 0.25:
            event |= {"type": "event", "text": self._text(SIGHTS)}
            if draw.random() < 0.3:
                del event["scene"]
        else:
            actor = draw.choice(scene.everybody)
            event |= {"type": "said", "text": self._text(SAYINGS), "actor": actor}
            event["volume"] = draw.choice(("whisper", "say", "say", "shout"))
            others = [name for name in scene.everybody if name != actor]
            if others and (event["volume"] == "whisper" or draw.random() < 0.4):
                event["to"] = draw.sample(others, draw.randint(1, min(2, len(others))))
            if self._events and draw.random() < 0.3:
                event["retells"] = draw.choice(self._events)
        if draw.random() < 0.15:
            anybody = [*self._players, *self._minds]
            event["audience"] = draw.sample(anybody, draw.randint(0, len(anybody)))
        if secret:
            event["text"] = "SECRET"
            self._note_witnesses(event)
        self._events.append(event["id"])
        knowing = frozenset(self._script.knowing) if secret else None
        self._script.steps.append(("report", event, knowing))

    def _note_witnesses(self, event: Mapping[str, Any]) -> None:
        """Work out who witnesses the secret."""
        names = set(self._audience(event))
        there = self._places.get(event.get("scene", ""), Place())
        script = self._script
        script.players = names.intersection(self._players)
        beside = script.players or set(there.players)
        script.knowing = {(mind, "") for mind in names.intersection(SHARED)}
        script.knowing |= {
            (mind, player) for mind in names.intersection(PRIVATE) for player in beside
        }

    def _audience(self, event: Mapping[str, Any]) -> Iterable[str]:
        actor = event.get("actor", "")
        if actor:
            yield actor
        if "audience" in event:
            yield from event["audience"]
            return
        if "scene" not in event:
            for place in self._places.values():
                yield from place.everybody
            return
        scene = self._places[event["scene"]]
        for name in scene.everybody:
            if event["type"] == "said":
                if event["volume"] == "whisper" and name not in event.get("to", ()):
                    continue
                here, there = scene.positions.get(actor), scene.positions.get(name)
                if here and there and dist(here, there) > RANGES[event["volume"]]:
                    continue
            yield name

    def _move(self, place: str) -> None:
        """Let others be in a place, of those who are in no other."""
        elsewhere = [
            somebody
            for name, other in self._places.items()
            if name != place
            for somebody in other.everybody
        ]
        draw, scene = self._draw, self._places[place]
        scene.players = [name for name in self._some(self._players) if name not in elsewhere]
        scene.minds = [name for name in self._some(self._minds) if name not in elsewhere]
        scene.positions = {}
        if draw.random() < 0.6:
            scene.positions = {
                name: [draw.uniform(0, 40), draw.uniform(0, 40)] for name in scene.everybody
            }
        self._put(place)

    def _move_somebody(self) -> None:
        draw = self._draw
        place = draw.choice(list(self._places))
        if draw.random() < 0.5:
            self._move(place)
            return
        scene = self._places[place]
        if not scene.everybody:
            return
        leaving = draw.choice(scene.everybody)
        for group in (scene.players, scene.minds):
            if leaving in group:
                group.remove(leaving)
        scene.positions.pop(leaving, None)
        self._put(place)

    def _put(self, place: str) -> None:
        scene = self._places[place]
        body = {"place": f"the {place}", "players": [*scene.players], "minds": [*scene.minds],
                "positions": dict(scene.positions)}  # fmt: skip
        self._script.steps.append(("scene", place, body))

    def _ask_somebody(self) -> None:
        draft = self._draw.choice(("", "Good evening", self._text(SAYINGS)))
        self._ask(self._draw.choice(self._script.minds), draft)

    def _ask(self, mind: Mind, draft: str) -> None:
        self._script.steps.append(("ask", mind, draft, mind in self._script.knowing))

    def _work(self) -> None:
        self._script.steps.append(("work", self._draw.choice(self._script.minds)))

    def _switch(self) -> None:
        self._script.steps.append(("switch",))

    def _wait(self) -> None:
        self._script.steps.append(("wait", self._draw.choice((30, 3600, 200_000))))

    def _save(self) -> None:
        name = f"s{len(self._saves)}"
        places = {
            place: Place([*at.players], [*at.minds], dict(at.positions))
            for place, at in self._places.items()
        }
        self._saves[name] = (
            places, [*self._events], set(self._script.knowing), set(self._script.players)
        )  # fmt: skip
        self._script.steps.append(("save", name))

    def _roll_back(self) -> None:
        if not self._saves:
            return
        name = self._draw.choice(list(self._saves))
        places, events, knowing, players = self._saves[name]
        self._places = {
            place: Place([*at.players], [*at.minds], dict(at.positions))
            for place, at in places.items()
        }
        self._events = [*events]
        self._script.knowing, self._script.players = set(knowing), set(players)
        self._script.steps.append(("roll back", name))

    def _some(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self._draw.random() < 0.6]

    def _text(self, templates: Sequence[str]) -> str:
        return self._draw.choice(templates).format(*[self._draw.choice(THINGS)] * 2)


class Performance:
    """One of the two lives of a world, on two servers with one database."""

    def __init__(
        self, servers: Sequence[RunningServer], clients: Sequence[httpx2.AsyncClient],
        clock: ManualClock, world: str, script: Script, secret: str,
    ) -> None:  # fmt: skip
        self._hosts = [
            Host(server, client, world) for server, client in zip(servers, clients, strict=True)
        ]
        self._clock = clock
        self._script = script
        self._secret = secret
        self._at = 0
        #: What the models of minds are given, and whether they know the secret.
        self.asked: list[tuple[Mind, bool, Any]] = []

    @property
    def _host(self) -> Host:
        return self._hosts[self._at % len(self._hosts)]

    async def live(self) -> None:
        start = {"time": "1203-05-01T12:00:00Z", "factor": 60}
        await self._host.request("PUT", json={"clock": start, "ranges": RANGES})
        for step in self._script.steps:
            match step:
                case ("scene", name, body):
                    await self._host.request("PUT", f"/scenes/{name}", body)
                case ("report", event, None):
                    await self._host.report(event)
                case ("report", event, knowing):
                    await self._host.report(event | {"text": self._secret})
                    assert await self._witnesses(event["id"]) == knowing & {*self._script.minds}
                case ("ask", mind, draft, knows):
                    self.asked.append((mind, knows, await self._ask(mind, draft)))
                case ("work", mind):
                    await self._work(mind)
                case ("save", name):
                    await self._host.request("POST", "/saves", {"name": name})
                case ("roll back", name):
                    await self._host.request("POST", "/rollback", {"name": name})
                case ("wait", seconds):
                    await self._clock.leap(seconds)
                case ("switch",):
                    self._at += 1

    async def logs(self) -> dict[str, Any]:
        """Return what players witnessed in the timeline that is going on."""
        stores = self._host.server.app.core.stores
        timeline = (await stores.worlds.find(self._host.world)).timeline
        ids = {player_account(timeline, player): player for player in PLAYERS}
        return {
            ids[account]: [
                (seen.event, seen.memory_type, seen.happened_at)
                for seen in await stores.minds.witnessed([log_of(number)], 0, 1000)
            ]
            for account, number in (await stores.worlds.accounts(list(ids))).items()
        }

    async def _ask(self, mind: Mind, draft: str) -> Any:
        slug, player = mind
        query = {"draft": draft} | ({"player": player} if player else {})
        body = await self._host.request("GET", f"/minds/{slug}/context", query=query)
        assert body["missing"] == {}
        for memory in [*body["memories"], *body["recalled"]]:
            del memory["id"]
        return body

    async def _work(self, mind: Mind) -> None:
        """Do what background work there is for a mind."""
        app = self._host.server.app
        worker = build_background_worker(app.core, ChatModels(app.core.runtime.settings))
        ((relationship, _),) = (await self._relationships([mind])).items()
        await worker.run_due_steps(relationship)

    async def _witnesses(self, event: str) -> set[Mind]:
        """Return those minds of the script that witnessed an event."""
        worlds = self._host.server.app.core.stores.worlds
        (stored,) = await worlds.events(await worlds.find(self._host.world), [event])
        relationships = await self._relationships(self._script.minds)
        return {relationships[number] for number in stored.witnesses if number in relationships}

    async def _relationships(self, minds: Sequence[Mind]) -> dict[int, Mind]:
        """Return minds by their relationships in the timeline that is going on."""
        stores = self._host.server.app.core.stores
        world = await stores.worlds.find(self._host.world)
        companions = await stores.companions.named([slug for slug, _ in minds])
        found: dict[int, Mind] = {}
        for slug, player in minds:
            account = world.timeline
            if player:
                known = await stores.worlds.account(world, player, met=False)
                assert known is not None
                account = known
            found[relationship_id_of(account, companions[slug].id)] = slug, player
        return found


@dataclass
class Tally:
    """What was found in worlds.

    `prompts` are those of minds that do not know the secret; `noticed`, those of minds that do,
    where they differ between the two lives. `differing` are prompts and logs that must not: the
    number of the world, whose it is, and both.
    """

    worlds: int = 0
    prompts: int = 0
    noticed: int = 0
    differing: list[tuple[int, Any, Any, Any]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.worlds += other.worlds
        self.prompts += other.prompts
        self.noticed += other.noticed
        self.differing += other.differing


async def live_worlds(numbers: Iterable[int], start: StartServer) -> Tally:
    """Live worlds twice each, on two servers with one database."""
    clock, tally = ManualClock(), Tally()
    servers = [await start(clock=clock, http_per_s=10_000) for _ in range(2)]
    await put_minds(servers[0], *SHARED)
    await put_minds(servers[0], *PRIVATE, mind=None)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                # Without sockets, which are tested elsewhere and would take most of the time.
                httpx2.AsyncClient(
                    transport=httpx2.ASGITransport(server.app.asgi),
                    base_url="http://localhost",
                    timeout=PATIENCE,
                )
            )
            for server in servers
        ]
        for number in numbers:
            script = Author(number).write()
            lives = [
                Performance(servers, clients, clock, f"{name}{number}", script, secret)
                for name, secret in zip(("one", "other"), script.secrets, strict=True)
            ]
            for life in lives:
                await life.live()
            tally.add(await _compared(number, script, lives))
    return tally


async def _compared(number: int, script: Script, lives: Sequence[Performance]) -> Tally:
    """Compare the two lives of a world."""
    tally = Tally(worlds=1)
    one, other = lives
    for (mind, knows, given), (*_, given_other) in zip(one.asked, other.asked, strict=True):
        if knows:
            tally.noticed += given != given_other
            continue
        tally.prompts += 1
        if given != given_other:
            tally.differing.append((number, mind, given, given_other))
    logs, other_logs = await one.logs(), await other.logs()
    assert logs.keys() == other_logs.keys()
    for player in logs.keys() - script.players:
        if logs[player] != other_logs[player]:
            tally.differing.append((number, player, logs[player], other_logs[player]))
    return tally


async def _live_alone(numbers: Sequence[int], models: Path) -> Tally:
    """Live worlds in a database of their own, in memory where that can be."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        async with embedded_postgres(Path(name)) as url:
            await migrate(url)
            await make_disposable(url)
            settings = patient_settings(url, Path(name), models_path=models)
            async with starting(settings, Watchdog()) as start:
                return await live_worlds(numbers, start)


def _work(numbers: Sequence[int], models: Path) -> Tally:
    """Live worlds in a process that gives way to others."""
    os.nice(19 - os.nice(0))
    configure_logging(load_settings(log_level="warning"))
    return run(_live_alone(numbers, models))


def main() -> None:
    """Live as many worlds as are asked for, and write what was found."""
    parser = argparse.ArgumentParser(description="Live random worlds twice each.")
    parser.add_argument("--worlds", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    models, tally, started = load_settings().models_dir.absolute(), Tally(), time.monotonic()
    chunks = [
        range(first, min(first + _CHUNK, options.worlds))
        for first in range(0, options.worlds, _CHUNK)
    ]
    with ProcessPoolExecutor(options.processes, max_tasks_per_child=1) as processes:
        for found in as_completed(processes.submit(_work, chunk, models) for chunk in chunks):
            tally.add(found.result())
            seconds = round(time.monotonic() - started)
            print(
                f"{tally.worlds:,} worlds, {len(tally.differing)} differ, {seconds:,} s", flush=True
            )
    for number, whose, given, given_other in tally.differing:
        print(f"World {number}, {whose}:\n{given}\n{given_other}")
    result = asdict(tally) | {"differing": len(tally.differing), "seconds": seconds}
    _RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
