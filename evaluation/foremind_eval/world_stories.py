"""What minds know of stories in which people come, go, do things and tell each other of them.

A story of the file lists its people and events: who enters, exits or is told, where, and who
witnesses each. It is played as a world, with its people as characters, through the interface of
game servers. The witnesses are computed from who is where, as for any world, and compared with
those of the file. Then each character is asked every question.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from foremind.app.server import Application
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import InvalidFile
from foremind.domain.relationship import companion_id_of
from foremind.domain.settings.settings import CompanionSettings

_NEUTRAL_DRAFT = "Good evening, how are you?"
_TIMEOUT_S = 120.0
_ATTEMPTS = 100  # of a request that comes too early
_ELSEWHERE = "elsewhere"  # where nobody is
_MAX_BATCH = 100  # events of a request
_AT_ONCE = 4  # stories
# What somebody says: "Ava privately told Mila that the pear is in the box."
_SAID = re.compile(r".*?\b(?:told|claimed)\b.*? that (?P<said>.+)", re.DOTALL)
_ASKED_ABOUT = re.compile(r"\bthe ([\w'-]+)")
_OUTERMOST = re.compile(r"\b(?:does|do|did) (?P<name>.+?) (?:\w+ly )?(?:think|believe|say)s?\b")


class StoryEvent(msgspec.Struct, frozen=True):
    """Something that happens, where if it is known, and who witnesses it."""

    text: str
    place: str | None
    witnesses: frozenset[str]
    enters: tuple[str, ...] = ()
    exits: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    actor: str | None = None
    kind: str = ""

    @property
    def scene(self) -> str:
        """The scene in which it is played."""
        return self.place or _ELSEWHERE

    @property
    def said(self) -> str | None:
        """What somebody says in it, if it is that."""
        if self.actor is None or self.kind not in ("tell", "claim"):
            return None
        match = _SAID.fullmatch(self.text)
        return self.text if match is None else match["said"]

    @property
    def shown(self) -> str:
        """What of it a prompt shows word for word."""
        return self.said or self.text


class StoryQuestion(msgspec.Struct, frozen=True):
    """A question: of order 0 about what is so, of a higher one about what somebody thinks."""

    question: str
    order: int = 0


class Story(msgspec.Struct, frozen=True):
    """People, what happens, and questions about it."""

    id: str
    people: tuple[str, ...]
    events: tuple[StoryEvent, ...]
    questions: tuple[StoryQuestion, ...] = ()

    def asked(self, question: StoryQuestion) -> tuple[str, ...]:
        """Return who can be asked a question: whoever thinks something in it, else everybody."""
        match = _OUTERMOST.search(question.question)
        asked = () if match is None else tuple({match["name"]} & {*self.people})
        return asked or self.people


class Score(msgspec.Struct, frozen=True):
    """Of how many events that were witnessed and asked about prompts had how many."""

    asked: int
    missing: int
    loss_rate: float


class WorldReport(msgspec.Struct, frozen=True):
    """What minds knew.

    `leak_rate` is the share of the prompts that hold an event that their mind has not witnessed,
    unless it witnessed another one with the same text. `loss_rate` is the share of the events that
    a mind witnessed and is asked about that its prompt lacks: those that mention what the question
    is about. `other_witnesses` counts the events whose computed witnesses are not those of the
    file. `by_order` has the losses of the questions of each order.
    """

    stories: int
    events: int
    longest: int
    other_witnesses: int
    prompts: int
    leaking: int
    leak_rate: float
    asked: int
    missing: int
    loss_rate: float
    by_order: dict[int, Score]
    examples: tuple[str, ...] = ()


class _StoryFile(msgspec.Struct, frozen=True):
    stories: tuple[Story, ...]


@dataclass
class _Tally:
    """What was counted so far; `examples` are the first leaks and losses."""

    other_witnesses: int = 0
    prompts: int = 0
    leaking: int = 0
    asked: Counter[int] = field(default_factory=Counter)
    missing: Counter[int] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def note(self, example: str) -> None:
        if len(self.examples) < 20:
            self.examples.append(example)


def read_stories(path: Path) -> tuple[Story, ...]:
    """Read stories (JSON).

    Raises:
        InvalidFile: names the field and what was expected.
    """
    try:
        stories = msgspec.json.decode(path.read_bytes(), type=_StoryFile).stories
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    if not stories:
        raise InvalidFile(f"{path}: stories: expected at least one")
    return stories


def count_prompts(stories: Iterable[Story]) -> int:
    """Return how many prompts are read."""
    return sum(len(story.people) * (1 + len(story.questions)) for story in stories)


async def measure_worlds(
    app: Application, port: int, stories: Sequence[Story], advance: Callable[[int], None]
) -> WorldReport:
    """Play stories on a running server, ask their people, and count leaks and losses.

    Args:
        advance: called with the number of prompts that were read.
    """
    slugs = _slugs({name for story in stories for name in story.people})
    for name, slug in slugs.items():
        await app.core.stores.companions.put(
            CompanionFile(slug, name, f"You are {name}.", settings=CompanionSettings(mind="world"))
        )
    tally = _Tally()
    url = f"http://127.0.0.1:{port}"
    waiting = iter(enumerate(stories))
    async with httpx2.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as http:

        async def perform() -> None:
            for number, story in waiting:
                performance = _Performance(app, http, f"story-{number}", story, slugs, tally)
                await performance.play()
                await performance.compare_witnesses()
                await performance.ask(advance)

        await asyncio.gather(*(perform() for _ in range(_AT_ONCE)))
    return _report(stories, tally)


class _Performance:
    """One story in a world of its own."""

    def __init__(
        self,
        app: Application,
        http: httpx2.AsyncClient,
        world: str,
        story: Story,
        slugs: dict[str, str],
        tally: _Tally,
    ) -> None:
        self._worlds = app.core.stores.worlds
        self._companions = app.core.stores.companions
        self._http = http
        self._world = world
        self._story = story
        self._slugs = slugs
        self._tally = tally

    async def play(self) -> None:
        """Report what happens, with everybody where they are."""
        await self._request("PUT", "", {"clock": {"factor": 0}})
        present: dict[str, list[str]] = {}
        reported: list[dict[str, Any]] = []
        for number, event in enumerate(self._story.events):
            if event.enters or event.scene not in present:
                await self._report(reported)
                for name in event.enters:
                    await self._leave(present, name, event.scene)
                present.setdefault(event.scene, []).extend(event.enters)
                await self._put(present, event.scene)
            reported.append(self._event(number, event))
            if event.exits or len(reported) == _MAX_BATCH:
                await self._report(reported)
                for name in event.exits:
                    await self._leave(present, name)
        await self._report(reported)

    async def compare_witnesses(self) -> None:
        """Compare who witnessed each event with what the file says."""
        world = await self._worlds.find(self._world)
        known = await self._companions.named([*self._slugs.values()])
        names = {known[slug].id: name for name, slug in self._slugs.items()}
        ids = [_id(number) for number in range(len(self._story.events))]
        stored = {event.id: event for event in await self._worlds.events(world, ids)}
        for id_, event in zip(ids, self._story.events, strict=True):
            witnesses = {names[companion_id_of(witness)] for witness in stored[id_].witnesses}
            if witnesses != event.witnesses:
                self._tally.other_witnesses += 1
                self._tally.note(f"{self._story.id}: {event.text} Witnesses: {sorted(witnesses)}")

    async def ask(self, advance: Callable[[int], None]) -> None:
        """Read the prompts of every person for every question, and for a neutral draft."""
        for name in self._story.people:
            await self._prompt(name, _NEUTRAL_DRAFT)
            for question in self._story.questions:
                prompt = await self._prompt(name, question.question)
                if name in self._story.asked(question):
                    self._count_losses(name, question, prompt)
            advance(1 + len(self._story.questions))

    def _count_losses(self, name: str, question: StoryQuestion, prompt: str) -> None:
        """Count what a person witnessed of what a question is about, and what of it is missing."""
        about = _ASKED_ABOUT.search(question.question)
        if about is None:
            return
        mentions = re.compile(rf"\b{re.escape(about[1])}\b")
        witnessed = {
            event.shown
            for event in self._story.events
            if name in event.witnesses and mentions.search(event.text)
        }
        missing = [text for text in witnessed if text not in prompt]
        self._tally.asked[question.order] += len(witnessed)
        self._tally.missing[question.order] += len(missing)
        for text in missing:
            self._tally.note(f"{self._story.id}: {name}, {question.question} Missing: {text}")

    async def _prompt(self, name: str, draft: str) -> str:
        """Return a person's prompt for a draft; count it, and whether it leaks."""
        body = await self._request("GET", f"/minds/{self._slugs[name]}/context", query=draft)
        prompt = "\n".join(message["content"] for message in body["messages"])
        witnessed = {event.shown for event in self._story.events if name in event.witnesses}
        rest = prompt
        for text in sorted(witnessed, key=len, reverse=True):
            rest = rest.replace(text, "\n")
        leaked = [
            event.shown
            for event in self._story.events
            if name not in event.witnesses and event.shown in rest
        ]
        self._tally.prompts += 1
        self._tally.leaking += bool(leaked)
        for text in leaked:
            self._tally.note(f"{self._story.id}: {name}, {draft} Leaked: {text}")
        return prompt

    def _event(self, number: int, event: StoryEvent) -> dict[str, Any]:
        reported = {"id": _id(number), "text": event.shown, "scene": event.scene}
        if event.said is None:
            return reported | {"type": "event"}
        assert event.actor is not None  # somebody says it
        told = {"type": "told", "actor": self._slugs[event.actor]}
        if not event.told:
            return reported | told
        to = [self._slugs[name] for name in event.told]
        return reported | told | {"to": to, "volume": "whisper"}

    async def _leave(self, present: dict[str, list[str]], name: str, into: str = "") -> None:
        """Let somebody leave wherever they are but `into`."""
        for place, people in present.items():
            if name in people:
                people.remove(name)
                if place != into:
                    await self._put(present, place)

    async def _put(self, present: dict[str, list[str]], place: str) -> None:
        minds = [self._slugs[name] for name in present[place]]
        body = {"place": place.replace("_", " "), "minds": minds}
        await self._request("PUT", f"/scenes/{place}", body)

    async def _report(self, events: list[dict[str, Any]]) -> None:
        if events:
            await self._request("POST", "/events", {"events": events})
            events.clear()

    async def _request(self, method: str, path: str, body: Any = None, query: str = "") -> Any:
        address, params = f"/v1/worlds/{self._world}{path}", {"draft": query} if query else None
        response = await self._http.request(method, address, json=body, params=params)
        for _ in range(_ATTEMPTS):
            if response.status_code != 429:
                break
            await asyncio.sleep(float(response.headers["Retry-After"]))  # a fast machine
            response = await self._http.request(method, address, json=body, params=params)
        response.raise_for_status()
        return response.json()


def _id(number: int) -> str:
    return f"e{number}"


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """Return a slug for each name."""
    numbers = count(1)
    slugs: dict[str, str] = {}
    for name in sorted(names):
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        taken = not slug or slug in slugs.values()
        slugs[name] = f"person-{next(numbers)}" if taken else slug
    return slugs


def _report(stories: Sequence[Story], tally: _Tally) -> WorldReport:
    asked, missing = tally.asked.total(), tally.missing.total()
    return WorldReport(
        stories=len(stories),
        events=sum(len(story.events) for story in stories),
        longest=max(len(story.events) for story in stories),
        other_witnesses=tally.other_witnesses,
        prompts=tally.prompts,
        leaking=tally.leaking,
        leak_rate=_share(tally.leaking, tally.prompts),
        asked=asked,
        missing=missing,
        loss_rate=_share(missing, asked),
        by_order={
            order: Score(
                tally.asked[order],
                tally.missing[order],
                _share(tally.missing[order], tally.asked[order]),
            )
            for order in sorted(tally.asked)
        },
        examples=tuple(tally.examples),
    )


def _share(part: int, whole: int) -> float:
    return round(part / max(1, whole), 4)
