"""A relationship lived day by day: every layer comes alive and none outgrows its share."""

from pathlib import Path

from foremind.app.core import core
from foremind.domain.settings.settings import Settings
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.labelled_file import read_labelled
from foremind_eval.longitudinal import measure_longitudinal

HARBOUR = Path(__file__).with_name("harbour.toml")


async def test_layers_come_alive_and_keep_to_their_share(settings: Settings) -> None:
    """On a conversation of our own; taking memories away costs evidence, nothing adds tokens."""
    clock = ManualClock()
    async with core(settings, clock=clock) as built:
        report = await measure_longitudinal(
            built, clock, read_labelled(HARBOUR), 30, lambda _: None
        )
    by_name = {layer.layer: layer for layer in report.layers}
    alive = {layer for week in report.weeks for layer in week.alive}
    assert alive >= {
        "working", "profile", "hot", "scratchpad", "memories", "vault", "library",
        "behaviours", "opening",
    }  # fmt: skip
    assert report.evidence >= 0.8
    assert by_name["memories"].alone > by_name["opening"].alone
    assert all(layer.tokens <= report.budget for layer in report.layers)
    assert sum(layer.tokens for layer in report.layers) <= report.budget
    assert report.asked["notes"] <= 1
