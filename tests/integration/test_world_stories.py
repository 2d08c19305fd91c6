"""Leaks and losses of minds in stories, on stories of our own in the published form."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from foremind.domain.errors import InvalidFile
from foremind_eval.world_stories import WorldReport, measure_worlds, read_stories
from tests.conftest import StartServer

PEOPLE = ("Ada", "Bert", "Cleo", "Dan", "Edda")
ROOMS = ("kitchen", "cellar", "front_yard", "attic", "study", "garden")
BOXES = ("red_crate", "blue_box", "green_drawer", "white_basket", "black_suitcase")
THINGS = (
    "apple", "lemon", "carrot", "pear", "plum", "cherry", "melon", "radish", "onion", "leek",
    "quince", "fig", "date", "grape", "peach", "lime", "turnip", "pumpkin", "celery", "spinach",
    "tomato", "cucumber", "eggplant", "asparagus",
)  # fmt: skip


class Narrator:
    """Writes a story: who is where, what happens there, and so who witnesses it."""

    def __init__(self, number: int) -> None:
        self._draw = random.Random(number)
        self._present: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.questions: list[dict[str, Any]] = []

    def tell(self, kind: str, text: str, place: str, **more: Any) -> None:
        """Add an event that everybody present witnesses, unless `told` says otherwise."""
        witnesses = [more["actor"], *more["told"]] if "told" in more else [*self._present]
        event = {"n": len(self.events) + 1, "text": text, "kind": kind, "place": place,
                 "witnesses": sorted(witnesses), "enters": [], "exits": [], "told": [],
                 "actor": None}  # fmt: skip
        self.events.append(event | more)

    def chapter(self, thing: str) -> None:
        """Somebody hides something, and the others see some of that."""
        draw, place = self._draw, self._draw.choice(ROOMS)
        people = draw.sample(PEOPLE, draw.randint(3, 5))
        self._present = [*people]
        listed = f"{', '.join(people[:-1])} and {people[-1]}"
        self.tell("enter", f"{listed} entered the {place}.", place, enters=people)
        self.tell("state", f"The {thing} is in the {draw.choice(BOXES)}.", place)
        for actor in people:
            box = draw.choice(BOXES)
            if draw.random() < 0.7:
                self.tell("moved", f"{actor} moved the {thing} to the {box}.", place, actor=actor)
            else:
                self.tell("made", f"{actor} made no movements.", place, actor=actor)
            self.tell("exit", f"{actor} exited the {place}.", place, exits=[actor], actor=actor)
            self._present.remove(actor)
        self._present = [*people]
        self.tell("enter", f"{listed} entered the waiting_room.", "waiting_room", enters=people)
        teller, told = draw.sample(people, 2)
        self.tell(
            "tell", f"{teller} privately told {told} that the {thing} is in the {box}.",
            "waiting_room", actor=teller, told=[told],
        )  # fmt: skip
        self.tell(
            "claim", f"{told} publicly claimed that {thing} is in the {draw.choice(BOXES)}.",
            "waiting_room", actor=told,
        )  # fmt: skip
        self.tell("exit", f"{listed} exited the waiting_room.", "waiting_room", exits=people)
        one, other, third, fourth = draw.sample(PEOPLE, 4)
        self.questions += [
            {"order": 0, "question": f"Where is the {thing} really?"},
            {"order": 1, "question": f"Where does {one} really think the {thing} is?"},
            {"order": 4, "question": f"Where does {one} think {other} thinks {third} thinks "
             f"{fourth} thinks the {thing} is?"},
        ]  # fmt: skip

    def story(self) -> dict[str, Any]:
        """Return the story."""
        questions = self._draw.sample(self.questions, min(20, len(self.questions)))
        return {"id": "ours", "people": PEOPLE, "events": self.events, "questions": questions}


async def measured(start: StartServer, path: Path, *stories: Any, **settings: Any) -> WorldReport:
    """Play stories, and return what minds knew."""
    path.write_text(json.dumps({"stories": stories}))
    server = await start(**settings)
    return await measure_worlds(server.app, server.port, read_stories(path), lambda _: None)


async def test_minds_know_of_a_story_what_they_witnessed(
    start: StartServer, tmp_path: Path
) -> None:
    """All that they are asked about, and nothing else; two worlds know nothing of each other."""
    narrators = Narrator(1), Narrator(2)
    for thing, narrator in zip(THINGS, narrators * 2, strict=False):
        narrator.chapter(thing)
    report = await measured(
        start, tmp_path / "a.json", *(narrator.story() for narrator in narrators)
    )
    assert (report.stories, report.prompts) == (2, 2 * 5 * 7)
    assert (report.other_witnesses, report.leak_rate, report.loss_rate) == (0, 0, 0)
    assert report.asked > 50
    assert list(report.by_order) == [0, 1, 4]


@pytest.mark.timeout(600)
async def test_minds_recall_what_has_left_their_prompts(start: StartServer, tmp_path: Path) -> None:
    """Of 300 events and more, of which a prompt holds a part, whoever is named in the question."""
    narrator = Narrator(3)
    for thing in THINGS:
        narrator.chapter(thing)
    story = narrator.story()
    assert len(story["events"]) > 300
    report = await measured(start, tmp_path / "long.json", story, context_tokens=4096)
    assert (report.other_witnesses, report.leak_rate) == (0, 0)
    assert report.loss_rate <= 0.02, report.examples
    assert report.asked > 100


async def test_leaks_losses_and_other_witnesses_are_counted(
    start: StartServer, tmp_path: Path
) -> None:
    """Where a file says that somebody witnessed what they did not, or did not what they did."""
    narrator = Narrator(4)
    narrator.chapter("apple")
    story = narrator.story()
    told = next(event for event in story["events"] if event["kind"] == "tell")
    (other, *_) = {*PEOPLE} - {*told["witnesses"]}
    told["witnesses"] = sorted({*told["witnesses"], other} - {*told["told"]})
    report = await measured(start, tmp_path / "wrong.json", story)
    assert report.other_witnesses == 1
    assert report.leaking == 4  # prompts of whom it was told, with three questions and without
    assert report.missing > 0
    assert report.loss_rate == round(report.missing / report.asked, 4)
    assert len(report.examples) >= 6


@pytest.mark.parametrize(
    ("content", "expected"), [("{", "truncated"), ('{"stories": []}', "at least one"),
                              ('{"stories": [{"id": "a", "people": []}]}', "events")]
)  # fmt: skip
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    """With what was expected."""
    path = tmp_path / "stories.json"
    path.write_text(content)
    with pytest.raises(InvalidFile, match=expected):
        read_stories(path)
