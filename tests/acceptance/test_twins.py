"""Two users live the same life, but for what one of them takes back: then nothing tells them apart.

A life is drawn from its number: things are told, asked for, slept over, written down, corrected,
moved, forgotten in every way, also while a reply or background work is under way.
`pytest tests/acceptance/test_twins.py --lives 50` goes on for longer.
"""

import asyncio
import json
import random
import re
import uuid
from collections import Counter
from typing import Any
from urllib.parse import quote

import pytest

from foremind.client import Client
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Chat, Script, ScriptedModel, scripted_model
from tests.acceptance.layers import World
from tests.acceptance.traces import held_in_process, stored_text
from tests.conftest import RunningServer, StartServer, eventually, owner_of

FACTS = (
    "My dog is called Scout", "I live in Porto", "I moved to Lisbon", "My favourite tea is mint",
    "I work as a baker", "My sister Klara paints boats", "I want to sail to the Azores",
    "Let's talk about the regatta later", "We decided to plant tulips", "I repaired the bicycle",
)  # fmt: skip
SECRETS = (
    "I buried the {} under the pear tree", "My {} is broken since the flood",
    "I decided to sell the {} to Zacharias", "Save this: the {} has the number 77124",
)  # fmt: skip
ASKED = "What was it that I told you lately?"
DERIVED = ("scratchpad", "profile", "episodes", "questions", "opening", "vault")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def spoken(chat: Chat) -> list[str]:
    """A model that says what it was told, and of a question all that it was shown."""
    last = chat["messages"][-1]["content"]
    if ASKED in last:
        told = [
            json.loads(each) for one in chat["messages"] for each in _QUOTED.findall(one["content"])
        ]
        return ["You said: ", " and ".join(told)[-400:] or "nothing", "."]
    return ["So it is."]


def curated(chat: Chat) -> str:
    """A model whose notes and episodes are made of what was said, and of nothing else."""
    task, given = (each["content"] for each in chat["messages"][:2])
    said = [line for line in given.splitlines() if re.search(r'"Ana"(?: \([^)]*\))?: "', line)]
    lines = [json.loads(_QUOTED.findall(each)[-1]) for each in said]
    told = [line for line in lines if not line.endswith("?")]
    if '{"operations"' in task:
        entries = dict(re.findall(r'^(\d+)\. \S+: "(.*)"$', given, re.MULTILINE))
        known = {text: int(number) for number, text in entries.items()}
        made = [f"Noted: {fact}" for fact in dict.fromkeys(told)]
        return json.dumps({"operations": [
            {"op": "UPDATE", "id": known[each], "kind": "other", "entry": each} if each in known
            else {"op": "ADD", "kind": "other", "entry": each}
            for each in made
        ]})  # fmt: skip
    if '{"episodes"' in task:
        return json.dumps({
            "episodes": [{
                "topic": "the day", "summary": " / ".join(told) or "Nothing.", "references": [],
                "questions": [], "conclusions": [each for each in told if "decided" in each],
                "open_questions": [each for each in told if "later" in each],
            }],
            "left_at": f"Last: {told[-1] if told else 'nothing'}", "settled": [],
        })  # fmt: skip
    if '{"entries"' in task:
        return json.dumps({"entries": [
            {"slot": "interests", "value": each[:80]} for each in told if "favourite" in each
        ]})  # fmt: skip
    if '{"lines"' in task:
        return json.dumps({"lines": [each[:200] for each in told[-3:]] or ["Nothing."]})
    shown = [json.loads(each) for each in _QUOTED.findall(given)]
    return json.dumps({"text": " | ".join(shown)[-1500:] or "Nothing."})


class Person(World):
    """A user who is called Ana."""

    def __init__(
        self, server: RunningServer, clock: ManualClock, model: ScriptedModel | None, user: str
    ) -> None:
        super().__init__(server, clock, model)
        self.user = user
        self.opened: dict[str, Any] = {}

    async def open(self) -> Client:
        """Open a session."""
        client = await self.server.connect()
        self.opened = await client.open_session("wren", user_id=self.user, name="Ana")
        self.relationship = int(self.opened["relationship_id"])
        return client

    async def say(self, text: str) -> None:
        """Say something, and wait until it is answered and judged."""
        client = await self.open()
        await client.send(text)
        await client.expect_all("response.done", "memory.stored")
        await client.close()

    async def find(self, kind: str, field: str, text: str) -> list[str]:
        """The ids of whatever says a text: turns, memories or records."""
        exported = await self.request("GET", "/export")
        return [each["id"] for each in exported[kind] if each[field] == text]

    async def looks(self) -> dict[str, Any]:
        """All that is known of this user, but for ids, times and what is made of everything.

        Without a model replies quote what is remembered; rules make episodes of replies, and what
        is remembered shares words with those beside it.
        """
        exported = await self.request("GET", "/export")
        layers = DERIVED if self.model is not None else ("scratchpad", "profile", "vault")
        owner = owner_of(self.server.app.core)
        words = await owner.fetch(_WORDS, self.relationship)
        facts = await owner.fetch(_FACTS, self.relationship)
        known = {each["id"]: each["content"] for each in exported["memories"]}
        return {
            "turns": Counter(
                (each["speaker"], each["text"])
                for each in exported["turns"]
                if each["text"] and (self.model is not None or each["speaker"] == "user")
            ),
            "memories": Counter(
                _memory(each, known)
                for each in exported["memories"]
                if self.model is not None or each["speaker"] == "user"
            ),
            "changes": Counter(
                (each["change"], known[each["memory"]]) for each in exported["changes"]
            ),
            "words": {row["term"]: float(row["often"]) for row in words if self.model is not None},
            "facts": Counter(tuple(row) for row in facts),
        } | {
            layer: Counter(
                (each["kind"], each["title"], each["content"], each["made_by"])
                for each in exported["records"]
                if each["layer"] == layer and each["kind"] != "inferred"
            )
            for layer in layers
        }  # fmt: skip


_WORDS = """
SELECT term, round(sum(frequency)::numeric, 2) AS often
FROM memory_terms WHERE relationship_id = $1 GROUP BY term
"""
_FACTS = "SELECT slot, value FROM memory_facts WHERE relationship_id = $1"


def _memory(memory: Any, known: dict[str, str]) -> object:
    superseded = known.get(memory["superseded_by"] or "", "")
    score, again = round(memory["significance"], 2), len(memory["again"])
    return (memory["content"], memory["speaker"], score, again, superseded)


class Life:
    """Ana, who tells more than she wants to be known, and her twin, who does not."""

    def __init__(self, ana: Person, twin: Person, draw: random.Random) -> None:
        self.ana = ana
        self.twin = twin
        self.draw = draw
        self.word = ""
        self.told: list[str] = []  # what is to be taken back
        self.asked = False
        self.done: list[str] = []
        self.twins = 0
        self.gone: list[str] = []
        self.seen = 0  # of the requests to the model

    @property
    def both(self) -> tuple[Person, Person]:
        return self.ana, self.twin

    async def settled(self) -> None:
        await self.ana.settled()

    async def tell(self) -> None:
        text = self.draw.choice(FACTS)
        self.done.append(text)
        for each in self.both:
            await each.say(text)

    async def tell_secret(self) -> None:
        text = self.draw.choice(SECRETS).format(self.word)
        self.told.append(text)
        await self.ana.say(text)

    async def tell_aside(self) -> None:
        """Ana says something that is not to be remembered; she may have told it before."""
        await self.sleep()
        client = await self.ana.open()
        text = self.draw.choice((*FACTS, "The key is below the mat", ASKED))
        await client.send_raw(
            {"type": "message.send", "id": uuid.uuid4().hex, "text": text, "remember": False}
        )
        await client.expect("response.done")
        await client.close()
        await self.sleep()

    async def ask(self) -> None:
        self.asked = True
        await self.ana.say(ASKED)

    async def sleep(self) -> None:
        await self.settled()
        await self.ana.next_day()

    async def write(self) -> None:
        body = {"layer": self.draw.choice(("vault", "scratchpad", "hot")),
                "content": "The key is below the mat\nThe lamp is green"}  # fmt: skip
        for each in self.both:
            await each.request("POST", "/records", body)

    async def write_secret(self) -> None:
        layer = self.draw.choice(("vault", "scratchpad", "topics"))
        body = {"layer": layer, "title": self.word, "content": f"The {self.word} is a secret"}
        await self.ana.request("POST", "/records", body)

    async def correct(self) -> None:
        text, instead = self.draw.choice(FACTS), f"I count {self.draw.choice(('six', 'ten'))} gulls"
        await self.settled()
        for each in self.both:
            for number in (await each.find("memories", "content", text))[:1]:
                await each.request("PATCH", f"/memories/{number}", {"content": instead})

    async def remove(self) -> None:
        """Remove a record that both have."""
        await self.settled()
        known = [
            {(layer, each["content"]) for layer in DERIVED for each in await one.records(layer)}
            for one in self.both
        ]
        shared = sorted(each for each in known[0] & known[1] if each[0] != "opening")
        if shared:
            layer, content = self.draw.choice(shared)
            for each in self.both:
                for record in await each.records(layer):
                    if record["content"] == content:
                        await each.answer("DELETE", f"/records/{record['id']}")

    async def forget(self) -> None:
        """Forget a fact, both."""
        text = self.draw.choice(FACTS)
        await self.settled()
        for each in self.both:
            for number in await each.find("turns", "text", text):
                await each.answer("DELETE", f"/memories?turn={number}")

    async def move(self) -> None:
        """Ana moves, at night: what she says afterwards is another session's for both."""
        await self.sleep()
        exported = await self.ana.request("GET", "/export")
        await self.ana.request("DELETE", "/memories")
        mine, self.ana.relationship = self.ana.relationship, "import"  # type: ignore[assignment]
        await self.ana.request("POST", "?companion=wren", exported)
        self.ana.relationship = mine

    async def take_back(self) -> None:
        """Forget all that the twin was not told, in one of the ways, whatever is under way."""
        client: Client | None = None
        waiting, model = asyncio.Event(), self.ana.model
        way = self.draw.choice(("memory", "turn", "about"))
        if self.draw.random() < 0.5:
            client = await self.ana.open()
            self.asked = True
            if model is not None:
                model.script.hold_before, model.script.hold_after = waiting, 1
            await client.send(ASKED)
            await client.expect("message.accepted")
        elif self.draw.random() < 0.5 and model is not None:
            model.script.hold_before = waiting
        else:
            await self.settled()
        await self._forget_secrets(way)
        waiting.set()
        if model is not None:
            model.script.hold_before = model.script.hold_after = None
        if client is not None:
            await client.expect("response.done")
            await client.close()
        await self.settled()
        for number in await self.ana.find("turns", "text", ASKED) if self.asked else ():
            await self.ana.answer("DELETE", f"/memories?turn={number}")
        # What she wrote about it herself.
        await self.ana.answer("DELETE", f"/memories?about={quote(self.word)}")
        self.told.clear()
        self.asked = False

    async def _forget_secrets(self, way: str) -> None:
        if way == "about":
            await self.ana.answer("DELETE", f"/memories?about={quote(self.word)}")
            return
        kind, field = ("memories", "content") if way == "memory" else ("turns", "text")
        for text in self.told:
            for number in await self.ana.find(kind, field, text):
                path = f"/{number}" if way == "memory" else f"?turn={number}"
                await self.ana.answer("DELETE", f"/memories{path}")

    async def everything(self) -> None:
        """Forget everything: from then on the twin is one who was never here."""
        await self.ana.request("DELETE", "/memories")
        await self.settled()
        self.told.clear()
        self.asked = False
        self.twins += 1
        twin = self.twin
        self.twin = Person(twin.server, twin.clock, twin.model, f"twin{self.twins}")
        await (await self.twin.open()).close()

    def asked_for(self) -> str:
        """What the model was shown since this was asked last."""
        asked = [] if self.ana.model is None else self.ana.model.script.requests
        shown, self.seen = asked[self.seen :], len(asked)
        return json.dumps(shown).lower()

    async def compare(self) -> None:
        """Nothing holds the word, and all else is as if it had never been said."""
        await self.settled()
        await self.settled()
        word = self.word.lower()
        stored = await stored_text(self.ana.server)
        at = stored.find(word)
        assert at < 0, f"{word} in {stored[max(0, at - 300) : at + 100]!r} after {self.done}"
        for request in ("/export", f"/context?draft={quote(ASKED)}"):
            assert word not in json.dumps(await self.ana.request("GET", request)).lower(), self.done
        shown = self.asked_for()
        assert not [each for each in self.gone if each in shown], self.done
        self.gone.append(word)
        for each in self.both:
            client = await each.open()
            assert word not in json.dumps(each.opened).lower(), self.done
            await client.close()
        await eventually(lambda: not held_in_process(word))
        mine, hers = await self.ana.looks(), await self.twin.looks()
        for part, known in mine.items():
            assert known == hers[part], f"{part} after {self.done}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many lives as are asked for."""
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(metafunc.config.getoption("--lives")))


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_nothing_tells_who_took_something_back_from_who_never_said_it(
    start: StartServer, model: bool, number: int
) -> None:
    """Neither a table, nor an export, nor a prompt, nor an object of the process."""
    draw = random.Random(f"life {number}, {model=}")
    clock = ManualClock()
    async with scripted_model(Script(reply=spoken, background=curated)) as scripted:
        url = scripted.url if model else ""
        days: dict[str, int] = draw.choice(({}, {"transcript": 3}))
        server = await start(clock=clock, llm_url=url, retention_days=days)
        used = scripted if model else None
        life = Life(Person(server, clock, used, "one"), Person(server, clock, used, "twin"), draw)
        for each in life.both:
            await (await each.open()).close()
        steps = (life.tell, life.tell_secret, life.tell_aside, life.ask, life.sleep, life.write,
                 life.write_secret, life.correct, life.remove, life.forget, life.move,
                 life.everything)  # fmt: skip
        for chapter in range(2):
            life.word = f"qz{'abcdefgh'[chapter]}zither"
            await life.tell()
            await life.tell_secret()
            for step in draw.choices(steps, (5, 2, 1, 1, 3, 1, 1, 1, 1, 1, 1, 0.5), k=6):
                life.done.append(step.__name__)
                await step()
                await clock.advance(20)
            life.done.append("take_back")
            await life.take_back()
            await life.compare()
