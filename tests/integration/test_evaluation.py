"""Evidence recall, on tiny files of our own in the published forms."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from foremind.app import Core
from foremind.errors import InvalidFile
from foremind.evaluation.benchmarks import run_benchmarks, search
from foremind.evaluation.chart import draw, recall_bar
from foremind.evaluation.labelled import read_labelled
from foremind.evaluation.locomo import read_locomo
from foremind.evaluation.madial import read_madial
from foremind.evaluation.recall import measure, steps
from foremind.evaluation.variants import ablation, one_variant
from foremind.settings import Settings

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
    monkeypatch.setattr(search, "_SEARCH_SIZES", (40,))
    monkeypatch.setattr(search, "_TABLE", 80)
    figures = await run_benchmarks(["search"], settings, tmp_path, lambda _: None)
    assert [each.name for each in figures] == [
        "search 40 of 80 in the process",
        "search 40 of 80 in the database",
    ]
    assert all(each.p50 > 0 and each.baseline_p50 > 0 for each in figures)


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
    variants = [one_variant(significance=False, age_window=False)]
    (report,) = await measure(built, [dialogue], variants, done.append)
    assert (report.questions, report.stored_fraction, report.recall_at_5) == (2, 1.0, 1.0)
    assert sum(done) == steps([dialogue], variants) == 6


async def test_the_significance_filter_is_the_servers_own(built: Core, tmp_path: Path) -> None:
    """With it on, what does not matter is not stored, and recalls nothing."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LOCOMO))
    variants = [one_variant(significance=True, age_window=False)]
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
    variants = [one_variant(significance=False, age_window=False)]
    (report,) = await measure(built, [read], variants, lambda _: None)
    assert (report.questions, report.recall_at_5) == (1, 1.0)


async def test_an_ablation_compares_every_improvement(built: Core, tmp_path: Path) -> None:
    """One report a variant, and one bar in the picture."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LOCOMO))
    variants = ablation(age_window=False)
    reports = await measure(built, read_locomo(path), variants, lambda _: None)
    assert [each.name for each in reports] == [each.name for each in variants]
    picture = ElementTree.fromstring(draw([recall_bar(each) for each in reports], "tiny & all"))
    bars = picture.findall("{http://www.w3.org/2000/svg}rect[@fill='#3b7ea1']")
    assert len(bars) == len(variants)


async def test_no_change_makes_the_companion_forget(built: Core) -> None:
    """The gate: a conversation of our own, through the whole path, at what it reaches today."""
    dialogues = read_labelled(Path(__file__).parent / "harbour.toml")
    variants = [one_variant(significance=True, age_window=False)]
    (report,) = await measure(built, dialogues, variants, lambda _: None)
    assert report.recall_at_5 >= 0.90
    assert report.recall_at_10 >= 0.95
    assert report.asked_kept == 1.0
    assert report.others_dropped >= 0.5
    assert report.filler_memories is not None
    assert report.filler_memories <= 1.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "id"),
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
