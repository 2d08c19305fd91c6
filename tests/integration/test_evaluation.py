"""Evidence recall, on tiny files of our own in the published forms."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from foremind.app.core import Core
from foremind.domain.errors import InvalidFile
from foremind.domain.memory import Recalled
from foremind.domain.settings.settings import Settings
from foremind.retrieval.search import Query
from foremind.text.tokenization import terms_of
from foremind_eval.benchmarks import memory_search, run_benchmarks, worlds
from foremind_eval.chart import draw, recall_bar
from foremind_eval.cli.evaluate import read_dialogues
from foremind_eval.dialogues import Dialogue, DialogueTurn, Question
from foremind_eval.keyword_baseline import measure_baseline
from foremind_eval.labelled_file import read_labelled
from foremind_eval.locomo import read_locomo
from foremind_eval.madial import read_madial
from foremind_eval.recall import count_steps, measure
from foremind_eval.variants import ablation, configured_variant

LOCOMO = [
    {
        "sample_id": "tiny",
        "conversation": {
            "speaker_a": "Ida",
            "speaker_b": "Jon",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ida", "dia_id": "D1:1", "text": "I planted an apple tree."},
                {"speaker": "Jon", "dia_id": "D1:2", "text": "I bought a red kayak."},
                {
                    "speaker": "Ida",
                    "dia_id": "D1:3",
                    "text": "Look!",
                    "blip_caption": "a photo of a grey cat on a chair",
                },
            ],
            "session_2_date_time": "9:05 am on 20 June, 2023",
            "session_2": [{"speaker": "Jon", "dia_id": "D2:1", "text": "hmm"}],
        },
        "qa": [
            {"question": "What did Jon buy?", "evidence": ["D1:2"]},
            {"question": "Which pet is in Ida's photo?", "evidence": ["D1:3; D9:9"]},
            {"question": "What was never said?", "evidence": []},
        ],
    }
]


async def test_the_search_benchmark_measures_each_beside_its_baseline(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the process, in the database, and what one would build first; on a small table."""
    monkeypatch.setattr(memory_search, "_SEARCH_SIZES", (40,))
    monkeypatch.setattr(memory_search, "_TABLE", 80)
    figures = await run_benchmarks(["search"], settings, tmp_path, lambda _: None)
    assert [figure.name for figure in figures] == [
        "search 40 of 80 in the process",
        "search 40 of 80 in the database",
    ]
    assert all(figure.p50 > 0 and figure.baseline_p50 > 0 for figure in figures)


async def test_the_benchmark_of_worlds_measures_each_beside_its_baseline(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is stored, and rollbacks, each of which is seen to be right; of a few minds."""
    for size, few in (
        ("_EVENTS", 10), ("_BATCHES", 2), ("_SINGLE", 16), ("_MINDS", 4), ("_MEMORIES", 3),
        ("_ROLLBACKS", 2), ("_SAVES", 2),
    ):  # fmt: skip
        monkeypatch.setattr(worlds, size, few)
    figures = await run_benchmarks(["worlds"], settings, tmp_path, lambda _: None)
    assert [figure.name for figure in figures][-2:] == [
        "roll back 4 minds of 3 memories until a prompt is right",
        "roll back 4 minds of 3 memories until a prompt is right, after 2 saves",
    ]
    assert all(figure.p50 > 0 and figure.baseline_p50 > 0 for figure in figures)


async def test_labelled_evidence_is_found_through_store_and_search(
    built: Core, tmp_path: Path
) -> None:
    """Captions count as shared; questions without known evidence are left out."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LOCOMO))
    (dialogue,) = read_locomo(path)
    assert [turn.session for turn in dialogue.turns].count(dialogue.turns[0].session) == 3
    assert (dialogue.user_name, dialogue.companion_name) == ("Ida", "Jon")
    done: list[int] = []
    variants = [configured_variant(significance=False, age_window=False)]
    (report,) = await measure(built, [dialogue], variants, done.append)
    assert (report.questions, report.stored_fraction, report.recall_at_5) == (2, 1.0, 1.0)
    assert sum(done) == count_steps([dialogue], variants) == 6


IN_PLACE = [
    {
        "sample_id": "In_Place",
        "conversation": {
            "speaker_a": "Ida",
            "speaker_b": "Assistant",
            "session_1_date_time": "08:00 am on 1 March, 2026",
            "session_1": [
                {"speaker": "Ida", "dia_id": "D1:1", "text": "I moved to Bergen for a new job."},
                {"speaker": "Assistant", "dia_id": "D1:2", "text": "Congratulations!"},
            ],
            "session_2_date_time": "08:00 am on 8 March, 2026",
            "session_2": [
                {"speaker": "Assistant", "dia_id": "D2:2", "text": "You moved to Bergen."},
                {"speaker": "Ida", "dia_id": "D2:3", "text": "I moved on to Tromso on Sunday."},
            ],
            "session_4_date_time": "08:00 am on 9 March, 2026",
            "session_4": [{"speaker": "Ida", "dia_id": "D4:1", "text": "My cat is called Plum."}],
        },
        "told_in_place": {
            "D2:1": {"speaker": "Ida", "dia_id": "D2:1", "text": "Where did I move to?"}
        },
        "qa": [
            {"question": "Where did I move to?", "evidence": ["D1:1"], "asked_before": 2},
            {"question": "Where did I move next?", "evidence": ["D1:1", "D2:3"], "asked_before": 3},
            {"question": "What is my cat called?", "evidence": ["D4:1"], "asked_before": 4},
            {"question": "What is my cat's name?", "evidence": ["D4:1"], "asked_before": 5},
        ],
    }
]


async def test_a_question_is_asked_in_its_place(built: Core, tmp_path: Path) -> None:
    """Before the session that it names, of what was said by then; and is told there as a turn.

    What only a later turn answers is no question yet; a number beyond the last session, or of one
    that is missing, means the place where that session would be.
    """
    path = tmp_path / "in_place.json"
    path.write_text(json.dumps(IN_PLACE))
    (dialogue,) = read_locomo(path)
    assert [turn.id for turn in dialogue.turns] == ["D1:1", "D1:2", "D2:1", "D2:2", "D2:3", "D4:1"]
    assert [(question.text, question.asked_before) for question in dialogue.questions] == [
        ("Where did I move to?", "2"),
        ("Where did I move next?", "4"),
        ("What is my cat's name?", None),
    ]
    asked: list[tuple[str, int, str]] = []
    search = built.search

    class Watched:
        async def search(self, query: Query) -> list[Recalled]:
            found = await search.search(query)
            asked.append((query.text, len(found), query.now.date().isoformat()))
            return found

    variants = [configured_variant(significance=False, age_window=False)]
    (report,) = await measure(
        replace(built, search=Watched()), [dialogue], variants, lambda _: None
    )
    assert asked == [
        ("Where did I move to?", 2, "2026-03-08"),
        ("Where did I move next?", 4, "2026-03-09"),
        ("What is my cat's name?", 1, "2026-03-10"),
    ]
    assert (report.questions, report.recall_at_5, report.stored_fraction) == (3, 1.0, 1.0)


async def test_every_variant_is_asked_at_the_same_place(built: Core, tmp_path: Path) -> None:
    """Those that store alike are told once, and each is asked before the session comes."""
    path = tmp_path / "in_place.json"
    path.write_text(json.dumps(IN_PLACE))
    done: list[int] = []
    dialogues, variants = read_locomo(path), ablation(age_window=False)
    reports = await measure(built, dialogues, variants, done.append)
    assert sum(done) == count_steps(dialogues, variants)
    assert {report.questions for report in reports} == {3}


def test_of_several_speakers_one_is_the_user(tmp_path: Path) -> None:
    """All others are the companion; the text says who of them it is."""
    sample = json.loads(json.dumps(LOCOMO[0]))
    sample["conversation"]["session_2"] = [
        {"speaker": "Jon", "dia_id": "D2:1", "text": "Kim: Tea?", "who": "Kim"},
        {"speaker": "Jon", "dia_id": "D2:2", "text": "Yes.", "who": "Lee"},
        {"speaker": "Mo", "dia_id": "D2:3", "text": "Me too."},
        {"speaker": "Jon", "dia_id": "D2:4", "text": "Here.", "who": "Jon"},
        {"speaker": "Ida", "dia_id": "D2:5", "text": "Thanks.", "who": "Ida"},
    ]
    path = tmp_path / "several.json"
    path.write_text(json.dumps([sample]))
    (dialogue,) = read_locomo(path)
    assert [(turn.speaker, turn.text) for turn in dialogue.turns[3:]] == [
        ("companion", "Kim: Tea?"),
        ("companion", "Lee: Yes."),
        ("companion", "Mo: Me too."),
        ("companion", "Here."),
        ("user", "Thanks."),
    ]


def test_a_file_is_known_by_its_form(tmp_path: Path) -> None:
    """A list of conversations is LoCoMo's, anything else a conversation of one's own."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LOCOMO))
    assert read_dialogues(str(path), None) == read_dialogues("locomo", path)
    own = Path(__file__).parent / "harbour.toml"
    assert read_dialogues(str(own), None) == read_labelled(own)
    with pytest.raises(InvalidFile, match="after it"):
        read_dialogues("locomo", None)


async def test_the_significance_filter_is_the_servers_own(built: Core, tmp_path: Path) -> None:
    """With it on, what does not matter is not stored, and recalls nothing."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LOCOMO))
    variants = [configured_variant(significance=True, age_window=False)]
    (report,) = await measure(built, read_locomo(path), variants, lambda _: None)
    assert (report.stored_fraction, report.asked_kept, report.others_dropped) == (0.75, 1.0, 0.5)
    assert report.filler_memories == 0.0


async def test_a_dialogue_brings_up_its_memories(built: Core, tmp_path: Path) -> None:
    """The form of MADial-Bench: what was said before the test turn is the question."""
    memories = {"1": "Tom won a swimming race.", "2": "Tom fed the ducks with grandma."}
    (tmp_path / "MADial-Bench-en-memory.json").write_text(
        "\n".join(
            json.dumps({number: {"time": "2024-03-01", "event": event}})
            for number, event in memories.items()
        )
    )
    dialogue = [
        "<BOD>\n",
        '<Tom>: "Tomorrow is the swimming gala!"\n',
        '<A>: "Remember?"\n',
        "<EOD>\n",
    ]
    (tmp_path / "MADial-Bench-en-dialogue.json").write_text(
        json.dumps({"dialogue": dialogue, "test-turn": [2], "relevant-id": [1], "user-id": 1})
    )
    (read,) = read_madial(tmp_path)
    assert read.questions[0].text == '<Tom>: "Tomorrow is the swimming gala!"'
    variants = [configured_variant(significance=False, age_window=False)]
    (report,) = await measure(built, [read], variants, lambda _: None)
    assert (report.questions, report.recall_at_5) == (1, 1.0)


def test_the_published_baseline_is_asked_the_same() -> None:
    """Each question where it belongs, of the turns before it."""
    said_at = datetime(2026, 3, 1, tzinfo=UTC)
    turns = tuple(
        DialogueTurn(str(number), str(number // 20), "user", f"The {word} stands here.", said_at)
        for number, word in enumerate([*["lamp"] * 30, "kayak", *["lamp"] * 30, "kayak"])
    )
    asked = "Where is the kayak?"
    early, late = Question(asked, frozenset({"30"}), "1"), Question(asked, frozenset({"30", "61"}))
    in_time = Question(asked, frozenset({"30"}), "2")
    for questions, recall in (
        ([early], 0.0),
        ([in_time], 1.0),
        ([late], 1.0),
        ([early, late], 0.5),
    ):
        report = measure_baseline([Dialogue("tiny", "Ida", "Jon", turns, tuple(questions))])
        assert (report.name, report.questions) == ("rank-bm25", len(questions))
        assert report.recall_at_5 == report.recall_at_20 == recall
        assert report.search_ms_p50 > 0


async def test_an_ablation_compares_every_improvement(built: Core, tmp_path: Path) -> None:
    """One report a variant, and one bar in the picture."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LOCOMO))
    variants = ablation(age_window=False)
    reports = await measure(built, read_locomo(path), variants, lambda _: None)
    assert [report.name for report in reports] == [variant.name for variant in variants]
    picture = ElementTree.fromstring(draw([recall_bar(report) for report in reports], "tiny & all"))
    bars = picture.findall("{http://www.w3.org/2000/svg}rect[@fill='#3b7ea1']")
    assert len(bars) == len(variants)


async def test_no_change_makes_the_companion_forget(built: Core) -> None:
    """The gate: a conversation of our own, through the whole path, at what it reaches today."""
    dialogues = read_labelled(Path(__file__).parent / "harbour.toml")
    variants = [configured_variant(significance=True, age_window=False)]
    (report,) = await measure(built, dialogues, variants, lambda _: None)
    assert report.recall_at_5 >= 0.90
    assert report.recall_at_10 >= 0.95
    assert report.asked_kept == 1.0
    assert report.others_dropped >= 0.5
    assert report.filler_memories is not None
    assert report.filler_memories <= 1.0


async def test_what_is_asked_in_other_words_is_found(built: Core) -> None:
    """Also where other memories hold the words: meaning is not drowned by them."""
    raw = (Path(__file__).parent / "other_words.toml").read_text("utf-8")
    dialogue = _among_others(tomllib.loads(raw)["facts"])
    variants = [configured_variant(significance=False, age_window=False)]
    (report,) = await measure(built, [dialogue], variants, lambda _: None)
    assert report.questions == 40
    assert report.recall_at_5 >= 0.70
    assert report.recall_at_10 >= 0.85


@pytest.mark.parametrize("evenings", [2, 3, 4])
async def test_of_a_small_life_few_memories_come_back(built: Core, evenings: int) -> None:
    """Of sixteen to thirty-two facts: what answers is among them, and fewer than ten is normal."""
    raw = (Path(__file__).parent / "small_life.toml").read_text("utf-8")
    dialogue = _small_life(tomllib.loads(raw), evenings)
    variants = [configured_variant(significance=True, age_window=False)]
    (report,) = await measure(built, [dialogue], variants, lambda _: None)
    assert report.questions >= 10
    assert report.recall_at_10 >= 0.95
    assert report.memories <= 7.5


def _small_life(life: dict[str, Any], evenings: int) -> Dialogue:
    turns, questions = [], []
    for evening, told in enumerate(life["evenings"][:evenings]):
        began = datetime(2026, 3, 1, 19, tzinfo=UTC) + timedelta(weeks=evening)
        for number, fact in enumerate(told["facts"]):
            at = began + timedelta(minutes=number)
            where = f"{evening}.{number}"
            turns.append(DialogueTurn(where, f"{evening}", "user", fact, at))
            answer = DialogueTurn(f"{where}a", f"{evening}", "companion", "Tell me more.", at)
            turns.append(answer)
    for case in life["asked"]:
        told = [turn.id for turn in turns if turn.text.startswith(case["told"])]
        if told:
            questions.append(Question(case["draft"], frozenset(told)))
    return Dialogue("small", "Ana", "Wren", tuple(turns), tuple(questions))


def _among_others(facts: Sequence[dict[str, Any]]) -> Dialogue:
    """Return a conversation: on each evening one fact, among what has another's words."""
    turns, questions = [], []
    for evening, fact in enumerate(facts):
        first, *others = facts[(evening * 7 + 3) % len(facts)]["beside"]
        began = datetime(2026, 1, 1, 18, tzinfo=UTC) + timedelta(days=evening)
        turns += [
            DialogueTurn(f"{evening}.{n}", f"{evening}", "user", text, began + timedelta(minutes=n))
            for n, text in enumerate([first, fact["told"], *others])
        ]
        questions.append(Question(fact["asked"], frozenset({f"{evening}.1"})))
    for fact in facts:
        assert not {*terms_of(fact["told"])} & {*terms_of(fact["asked"])}
    return Dialogue("others", "Ines", "Mara", tuple(turns), tuple(questions))


def _own(turns: Sequence[str] = "12", questions: Sequence[Question] = ()) -> str:
    """Return a file with a turn in each of these sessions, called a, b, c ..., and questions."""
    said = [
        DialogueTurn(
            chr(ord("a") + place), session, "user", "Hello.", datetime(2026, 1, 1, tzinfo=UTC)
        )
        for place, session in enumerate(turns)
    ]
    whole = Dialogue("own", "A", "B", tuple(said), tuple(questions))
    return msgspec.json.encode(whole).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "id"),
        (_own(questions=[Question("?", frozenset("c"), "never")]), r"questions\[0\].asked_before"),
        (_own(questions=[Question("?", frozenset("c"), "2")]), r"questions\[0\].evidence"),
        (_own(turns=["1", "2", "1"]), "turns: expected those of a session"),
        ('{"id": "x"}', "user_name"),
        (
            '{"id": "x", "user_name": "A", "companion_name": "B", "turns": [], "questions": []}',
            "questions",
        ),
        (
            '{"id": "x", "user_name": "A", "companion_name": "B", "turns": [],'
            ' "questions": [{"text": "?", "evidence": ["t1"]}]}',
            "evidence",
        ),
    ],
)
def test_a_wrong_labelled_file_names_the_field(text: str, said: str, tmp_path: Path) -> None:
    """And what was expected."""
    path = tmp_path / ("own.json" if text else "own.toml")
    path.write_text(text)
    with pytest.raises(InvalidFile, match=said):
        read_labelled(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"conversation": {}}]'])
def test_another_file_is_a_clear_error(text: str, tmp_path: Path) -> None:
    """Which form was expected."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InvalidFile, match="LoCoMo"):
        read_locomo(path)
    with pytest.raises(InvalidFile, match="MADial"):
        read_madial(tmp_path)
