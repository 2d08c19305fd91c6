"""The page's colours: text is legible on every ground it stands on, in light and in dark."""

import re

import pytest

from tests.conftest import ROOT

_AA = 4.5  # WCAG 2.2, 1.4.3
_PAIRS = (
    ("ink", "ground"), ("ink", "paper"), ("ink", "mine"),
    ("quiet", "ground"), ("quiet", "paper"), ("quiet", "mine"),
    ("accent", "ground"), ("accent", "mine"), ("on-accent", "accent"),
    ("ready", "ground"), ("trouble", "ground"), ("ground", "ink"),
)  # fmt: skip


def _schemes() -> dict[str, dict[str, str]]:
    """The colours by name, of the light scheme and of the dark one."""
    style = (ROOT / "client_demo" / "style.css").read_text("utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    named = [dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in (light, dark)]
    return {"light": named[0], "dark": named[1]}


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_is_asked_for(scheme: str) -> None:
    """At least that of level AA, for text of any size."""
    colours = _schemes()[scheme]
    for text, ground in _PAIRS:
        lighter, darker = sorted(
            (_luminance(colours[text]), _luminance(colours[ground])), reverse=True
        )
        assert (lighter + 0.05) / (darker + 0.05) >= _AA, (text, ground)
