"""A user who erases secrets cannot be told from a twin who never told them.

Both live the same life, which is drawn at random from its number: messages, questions, new
sessions, records, corrections, imports and erasures, also while replies or background work are in
flight. `pytest tests/acceptance/test_erasure_twins.py --effort 10` runs more lives.
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

from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Chat, Script, ScriptedModel, scripted_model
from tests.acceptance.traces import objects_containing, stored_text
from tests.acceptance.world import World
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
QUESTION = "What was it that I told you lately?"
DERIVED = ("scratchpad", "profile", "episodes", "questions", "opening", "vault")
LIVES = 3  # with a model and without, with an effort of 1
_QUOTATION = re.compile(r'"(?:[^"\\]|\\.)*"')


def quoting_reply(chat: Chat) -> list[str]:
    """A model that answers the question with everything quoted in its prompt."""
    last = chat["messages"][-1]["content"]
    if QUESTION in last:
        quoted = [
            json.loads(quotation)
            for message in chat["messages"]
            for quotation in _QUOTATION.findall(message["content"])
        ]
        return ["You said: ", " and ".join(quoted)[-400:] or "nothing", "."]
    return ["So it is."]


def verbatim_background(chat: Chat) -> str:
    """A model whose notes and episodes consist of the user's statements and nothing else."""
    task, prompt = (message["content"] for message in chat["messages"][:2])
    user_lines = [
        line for line in prompt.splitlines() if re.search(r'"Ana"(?: \([^)]*\))?: "', line)
    ]
    texts = [json.loads(_QUOTATION.findall(line)[-1]) for line in user_lines]
    facts = [text for text in texts if not text.endswith("?")]
    found: dict[str, Any] = {}
    if '"operations": ' in task:
        entries = dict(re.findall(r'^(\d+)\. \S+: "(.*)"$', prompt, re.MULTILINE))
        ids = {text: int(number) for number, text in entries.items()}
        notes = [f"Noted: {fact}" for fact in dict.fromkeys(facts)]
        found["operations"] = [
            {"op": "UPDATE", "id": ids[note], "kind": "other", "entry": note} if note in ids
            else {"op": "ADD", "kind": "other", "entry": note}
            for note in notes
        ]  # fmt: skip
    if '"entries": ' in task:
        found["entries"] = [
            {"slot": "likes", "value": fact[:80]} for fact in facts if "favourite" in fact
        ]
    if found:
        return json.dumps(found)
    if '{"episodes"' in task:
        return json.dumps({
            "episodes": [{
                "topic": "the day", "summary": " / ".join(facts) or "Nothing.", "references": [],
                "questions": [], "conclusions": [fact for fact in facts if "decided" in fact],
                "open_questions": [fact for fact in facts if "later" in fact],
            }],
            "left_at": f"Last: {facts[-1] if facts else 'nothing'}", "settled": [],
        })  # fmt: skip
    if '{"lines"' in task:
        return json.dumps({"lines": [fact[:200] for fact in facts[-3:]] or ["Nothing."]})
    quoted = [json.loads(quotation) for quotation in _QUOTATION.findall(prompt)]
    return json.dumps({"text": " | ".join(quoted)[-1500:] or "Nothing."})


class Person(World):
    """One of the two users; both are called Ana."""

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
        """Send a message in a session of its own, and wait for the reply and its ingest."""
        client = await self.open()
        await client.send(text)
        await client.expect_all("response.done", "memory.stored")
        await client.close()

    async def find(self, kind: str, field: str, text: str) -> list[str]:
        """Return the ids of turns, memories or records with a text."""
        exported = await self.request("GET", "/export")
        return [part["id"] for part in exported[kind] if part[field] == text]

    async def comparable_state(self) -> dict[str, Any]:
        """Return all stored about this user but ids, times and what depends on everything.

        Without a model, replies quote memories, rules derive episodes from replies, and memories
        share terms with their neighbours, so that these are left out.
        """
        exported = await self.request("GET", "/export")
        layers = DERIVED if self.model is not None else ("scratchpad", "profile", "vault")
        owner = owner_of(self.server.app.core)
        terms = await owner.fetch(_TERM_FREQUENCIES, self.relationship)
        facts = await owner.fetch(_FACTS, self.relationship)
        contents = {memory["id"]: memory["content"] for memory in exported["memories"]}
        return {
            "turns": Counter(
                (turn["speaker"], turn["text"])
                for turn in exported["turns"]
                if turn["text"] and (self.model is not None or turn["speaker"] == "user")
            ),
            "memories": Counter(
                _comparable_memory(memory, contents)
                for memory in exported["memories"]
                if self.model is not None or memory["speaker"] == "user"
            ),
            "changes": Counter(
                (change["change"], contents[change["memory"]]) for change in exported["changes"]
            ),
            "terms": {row["term"]: float(row["often"]) for row in terms if self.model is not None},
            "facts": Counter(tuple(row) for row in facts),
        } | {
            layer: Counter(
                (record["kind"], record["title"], record["content"], record["made_by"])
                for record in exported["records"]
                if record["layer"] == layer and record["kind"] != "inferred"
            )
            for layer in layers
        }  # fmt: skip


_TERM_FREQUENCIES = """
SELECT term, round(sum(frequency)::numeric, 2) AS often
FROM memory_terms WHERE relationship_id = $1 GROUP BY term
"""
_FACTS = "SELECT slot, value FROM memory_facts WHERE relationship_id = $1"


def _comparable_memory(memory: Any, contents: dict[str, str]) -> object:
    superseded = contents.get(memory["superseded_by"] or "", "")
    score, repetitions = round(memory["significance"], 2), len(memory["again"])
    return (memory["content"], memory["speaker"], score, repetitions, superseded)


class TwinLives:
    """Ana, who tells secrets and erases them, and her twin, who lives the same without secrets."""

    def __init__(self, ana: Person, twin: Person, draw: random.Random) -> None:
        self.ana = ana
        self.twin = twin
        self.draw = draw
        self.word = ""
        self.secrets: list[str] = []  # told and not yet erased
        self.asked = False
        self.done: list[str] = []
        self.twins = 0
        self.erased_words: list[str] = []
        self.requests_seen = 0  # of those to the model

    @property
    def both(self) -> tuple[Person, Person]:
        return self.ana, self.twin

    async def wait_until_idle(self) -> None:
        await self.ana.wait_until_idle()

    async def tell(self) -> None:
        text = self.draw.choice(FACTS)
        self.done.append(text)
        for person in self.both:
            await person.say(text)

    async def tell_secret(self) -> None:
        text = self.draw.choice(SECRETS).format(self.word)
        self.secrets.append(text)
        await self.ana.say(text)

    async def tell_aside(self) -> None:
        """Ana sends a message not to be remembered; she may have told the same before."""
        await self.sleep()
        client = await self.ana.open()
        text = self.draw.choice((*FACTS, "The key is below the mat", QUESTION))
        await client.send_raw(
            {"type": "message.send", "id": uuid.uuid4().hex, "text": text, "remember": False}
        )
        await client.expect("response.done")
        await client.close()
        await self.sleep()

    async def ask(self) -> None:
        self.asked = True
        await self.ana.say(QUESTION)

    async def sleep(self) -> None:
        await self.wait_until_idle()
        await self.ana.next_day()

    async def write(self) -> None:
        body = {"layer": self.draw.choice(("vault", "scratchpad", "hot")),
                "content": "The key is below the mat\nThe lamp is green"}  # fmt: skip
        for person in self.both:
            await person.request("POST", "/records", body)

    async def write_secret(self) -> None:
        layer = self.draw.choice(("vault", "scratchpad", "topics"))
        body = {"layer": layer, "title": self.word, "content": f"The {self.word} is a secret"}
        await self.ana.request("POST", "/records", body)

    async def correct(self) -> None:
        text, correction = (
            self.draw.choice(FACTS),
            f"I count {self.draw.choice(('six', 'ten'))} gulls",
        )
        await self.wait_until_idle()
        for person in self.both:
            for number in (await person.find("memories", "content", text))[:1]:
                await person.request("PATCH", f"/memories/{number}", {"content": correction})

    async def remove(self) -> None:
        """Both remove a record that both have."""
        await self.wait_until_idle()
        ana, twin = [
            {
                (layer, record["content"])
                for layer in DERIVED
                for record in await person.records(layer)
            }
            for person in self.both
        ]
        shared = sorted((layer, content) for layer, content in ana & twin if layer != "opening")
        if shared:
            layer, content = self.draw.choice(shared)
            for person in self.both:
                for record in await person.records(layer):
                    if record["content"] == content:
                        await person.response_to("DELETE", f"/records/{record['id']}")

    async def forget(self) -> None:
        """Both erase a fact."""
        text = self.draw.choice(FACTS)
        await self.wait_until_idle()
        for person in self.both:
            for number in await person.find("turns", "text", text):
                await person.response_to("DELETE", f"/memories?turn={number}")

    async def move(self) -> None:
        """Ana exports, erases and imports everything between two sessions."""
        await self.sleep()
        exported = await self.ana.request("GET", "/export")
        await self.ana.request("DELETE", "/memories")
        mine, self.ana.relationship = self.ana.relationship, "import"  # type: ignore[assignment]
        await self.ana.request("POST", "?companion=wren", exported)
        self.ana.relationship = mine

    async def take_back(self) -> None:
        """Erase everything that the twin was not told, perhaps while work is in flight."""
        client: Client | None = None
        release, model = asyncio.Event(), self.ana.model
        way = self.draw.choice(("memory", "turn", "about"))
        if self.draw.random() < 0.5:
            client = await self.ana.open()
            self.asked = True
            if model is not None:
                model.script.hold_before, model.script.hold_after = release, 1
            await client.send(QUESTION)
            await client.expect("message.accepted")
        elif self.draw.random() < 0.5 and model is not None:
            model.script.hold_before = release
        else:
            await self.wait_until_idle()
        await self._forget_secrets(way)
        release.set()
        if model is not None:
            model.script.hold_before = model.script.hold_after = None
        if client is not None:
            await client.expect("response.done")
            await client.close()
        await self.wait_until_idle()
        for number in await self.ana.find("turns", "text", QUESTION) if self.asked else ():
            await self.ana.response_to("DELETE", f"/memories?turn={number}")
        # The records that she wrote about it.
        await self.ana.response_to("DELETE", f"/memories?about={quote(self.word)}")
        self.secrets.clear()
        self.asked = False

    async def _forget_secrets(self, way: str) -> None:
        if way == "about":
            await self.ana.response_to("DELETE", f"/memories?about={quote(self.word)}")
            return
        kind, field = ("memories", "content") if way == "memory" else ("turns", "text")
        for text in self.secrets:
            for number in await self.ana.find(kind, field, text):
                path = f"/{number}" if way == "memory" else f"?turn={number}"
                await self.ana.response_to("DELETE", f"/memories{path}")

    async def everything(self) -> None:
        """Erase everything: from then on, the twin is a new user."""
        await self.ana.request("DELETE", "/memories")
        await self.wait_until_idle()
        self.secrets.clear()
        self.asked = False
        self.twins += 1
        twin = self.twin
        self.twin = Person(twin.server, twin.clock, twin.model, f"twin{self.twins}")
        await (await self.twin.open()).close()

    def unseen_requests(self) -> str:
        """Return the requests to the model since the last call."""
        requests = [] if self.ana.model is None else self.ana.model.script.requests
        unseen, self.requests_seen = requests[self.requests_seen :], len(requests)
        return json.dumps(unseen).lower()

    async def compare(self) -> None:
        """Assert that nothing contains the secret, and that both users are in the same state."""
        await self.wait_until_idle()
        await self.wait_until_idle()
        word = self.word.lower()
        stored = await stored_text(self.ana.server)
        at = stored.find(word)
        assert at < 0, f"{word} in {stored[max(0, at - 300) : at + 100]!r} after {self.done}"
        for request in ("/export", f"/context?draft={quote(QUESTION)}"):
            assert word not in json.dumps(await self.ana.request("GET", request)).lower(), self.done
        requests = self.unseen_requests()
        assert not [erased for erased in self.erased_words if erased in requests], self.done
        self.erased_words.append(word)
        for person in self.both:
            client = await person.open()
            assert word not in json.dumps(person.opened).lower(), self.done
            await client.close()
        await eventually(lambda: not objects_containing(word))
        state, expected = await self.ana.comparable_state(), await self.twin.comparable_state()
        for part, stored_part in state.items():
            assert stored_part == expected[part], f"{part} after {self.done}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize by the option `--effort`."""
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(LIVES * metafunc.config.getoption("--effort")))


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_erased_secrets_leave_the_state_of_a_user_who_never_told_them(
    start: StartServer, model: bool, number: int
) -> None:
    """In tables, exports, prompts and live objects."""
    draw = random.Random(f"life {number}, {model=}")
    clock = ManualClock()
    async with scripted_model(
        Script(reply=quoting_reply, background=verbatim_background)
    ) as scripted:
        url = scripted.url if model else ""
        days: dict[str, int] = draw.choice(({}, {"transcript": 3}))
        server = await start(clock=clock, llm_url=url, retention_days=days)
        used = scripted if model else None
        life = TwinLives(
            Person(server, clock, used, "one"), Person(server, clock, used, "twin"), draw
        )
        for person in life.both:
            await (await person.open()).close()
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
