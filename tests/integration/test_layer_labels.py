"""What the layers hold of a labelled life is what the labels say, as far as it is known to be."""

from pathlib import Path

import msgspec
import pytest

from foremind.app.core import core
from foremind.domain.errors import InvalidFile
from foremind.domain.settings.settings import Settings
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_eval.layer_labels import (
    LABELLED_YEAR,
    measure_labels,
    read_labelled_relationship,
)


async def test_the_layers_hold_what_labels_say(settings: Settings) -> None:
    """By rules: bounds a little below what they reach, so that nothing gets worse unseen."""
    clock = ManualClock()
    async with core(settings, clock=clock) as built:
        report = await measure_labels(
            built, clock, read_labelled_relationship(LABELLED_YEAR), lambda _: None
        )
    assert report.made_by == "rules"
    assert report.episodes.precision >= 0.5
    assert report.episodes.found >= 0.6
    assert report.topics.precision >= 0.55
    assert report.topics.found >= 0.75
    assert report.documents.precision >= 0.5
    assert report.documents.found >= 0.7
    assert all(layer.unasked <= 0.2 for layer in (report.episodes, report.topics, report.documents))
    assert report.profile_precision >= 0.9
    assert report.profile_recall >= 0.8
    assert report.questions >= 0.8
    assert report.other_questions <= 1


async def test_a_life_is_lived_with_a_language_model_too(settings: Settings) -> None:
    """Two sessions of it; the background work is the model's."""
    life = read_labelled_relationship(LABELLED_YEAR)
    short = msgspec.structs.replace(
        life, sessions=life.sessions[:2], asked=life.asked[-1:], documents=[]
    )
    clock = ManualClock()
    async with scripted_model(Script(background=background_answer)) as model:
        own = msgspec.structs.replace(settings, llm_url=model.url)
        async with core(own, clock=clock) as built:
            report = await measure_labels(built, clock, short, lambda _: None)
    assert report.made_by == "model"
    assert model.script.background_requests
    assert report.questions == 0.0


@pytest.mark.parametrize(
    ("changed", "into", "named"),
    [
        ("day = 9", "day = 0", "sessions"),
        ("sessions = [9]", "sessions = [8]", "asked[0].sessions"),
        ('slot = "home"', "slot = 1", "profile"),
    ],
)
def test_a_life_that_cannot_be_read_names_what_was_expected(
    tmp_path: Path, changed: str, into: str, named: str
) -> None:
    """The field, and why."""
    file = tmp_path / "life.toml"
    file.write_text(LABELLED_YEAR.read_text().replace(changed, into, 1))
    with pytest.raises(InvalidFile) as caught:
        read_labelled_relationship(file)
    assert named in str(caught.value)
