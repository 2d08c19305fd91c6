"""Recall of records for a draft."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from msgspec import structs

from foremind.domain.record import NO_DETAILS, Record
from foremind.retrieval.relationship_layers import RecordIndex, references_in, topic_weight
from foremind_models import Manifest, calibrated_cosine, calibrated_passage_cosine

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def record(number: int, vector: list[float], refs: tuple[str, ...] = (), days: int = 0) -> Record:
    """A record with a unit vector."""
    unit = np.array(vector, np.float32) / np.linalg.norm(vector)
    then = NOW - timedelta(days=days)
    return Record(
        number, "episodes", "", "", "x", refs, NO_DETAILS, unit, "rules", None, then, then, 1
    )


QUERY = np.array([1, 0], np.float32)


def test_vector_and_reference_matches_are_merged_best_first() -> None:
    """A record that matches both ways comes first, one that matches neither is not returned."""
    records = [
        record(1, [1, 1]),
        record(2, [0, 1], ("porto",)),
        record(3, [1, 0.2], ("porto",)),
        record(4, [0, 1]),
    ]
    found = RecordIndex(records).find(QUERY, ["porto"], 0.6, 3)
    assert [match.id for match in found] == [3, 2, 1]


def test_weights_affect_the_order_only() -> None:
    """An old topic comes after a new one that is slightly less similar."""
    records = [record(1, [1, 0], days=360), record(2, [1, 0.5])]
    half_life = timedelta(days=180)
    found = RecordIndex(records).find(
        QUERY, [], 0.5, 3, lambda topic: topic_weight(topic, NOW, half_life)
    )
    assert [match.id for match in found] == [2, 1]
    assert topic_weight(records[0], NOW, half_life) == pytest.approx(0.25)


def test_using_a_topic_restores_its_weight_like_updating_it() -> None:
    """The later of last use and last update counts."""
    half_life = timedelta(days=180)
    used = replace(record(1, [1, 0], days=360), used=3, used_at=NOW - timedelta(days=180))
    assert topic_weight(used, NOW, half_life) == pytest.approx(0.5)
    newer = replace(used, updated_at=NOW)
    assert topic_weight(newer, NOW, half_life) == 1


def test_references_are_runs_of_words() -> None:
    """Regardless of case."""
    assert "new york" in references_in("Shall we go to New York?")
    assert references_in("") == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("I saw Will yesterday", True),
        ("Is Will well?", True),
        ("Will sings well", True),
        ("Will, you should come", True),
        ("Do you know what Will said? He left.", True),
        ("Yes! Will", True),
        ("Will you sing?", False),
        ("Well... Will it rain?", False),
        ('She asked: "Will you come?"', False),
        ("Yes, I will", False),
        ("I will, and you will", False),
        ("WILL YOU SING FOR HIM, OR WILL I", False),
    ],
)
def test_an_everyday_word_is_a_reference_only_where_it_is_used_as_a_name(
    text: str, *, named: bool
) -> None:
    """Judged by its capital letter, and at the start of a sentence by what follows."""
    assert ("will" in references_in(text)) == named


def test_other_names_are_found_regardless_of_case() -> None:
    """Players seldom type capitals."""
    assert "ruby" in references_in("i saw ruby")
    assert "free will" in references_in("we spoke of free will")


def test_published_thresholds_are_converted_to_the_models_scale() -> None:
    """Interpolated between calibration points; without any, no two texts are near enough."""
    plain = Manifest("m", "x", 2, 10, "mean", "onnx", {}, ())
    scaled = Manifest("m", "x", 2, 10, "mean", "onnx", {}, (), calibration={"0.6": 0.2, "0.8": 0.4})
    assert calibrated_cosine(plain, 0.72) > 1.0
    assert calibrated_cosine(scaled, 0.7) == pytest.approx(0.3)
    assert (calibrated_cosine(scaled, 0.5), calibrated_cosine(scaled, 0.9)) == (0.2, 0.4)


def test_two_passages_have_thresholds_of_their_own() -> None:
    """Those of a query and a passage, unless the model has others."""
    plain = Manifest("m", "x", 2, 10, "mean", "onnx", {}, ())
    asked = structs.replace(plain, calibration={"0.6": 0.2, "0.8": 0.4})
    both = structs.replace(asked, passage_calibration={"0.6": 0.5, "0.8": 0.9})
    assert calibrated_passage_cosine(plain, 0.72) > 1.0
    assert calibrated_passage_cosine(asked, 0.7) == pytest.approx(0.3)
    assert calibrated_passage_cosine(both, 0.7) == pytest.approx(0.7)
    assert calibrated_cosine(both, 0.7) == pytest.approx(0.3)
