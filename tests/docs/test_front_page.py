"""The front page: it is short, and its picture moves, briefly, and is quickly loaded."""

from PIL import Image

from tests.conftest import ROOT

_PICTURE = ROOT / "docs" / "typing.gif"
_MAX_BYTES = 1_500_000


def test_the_moving_picture_is_short_and_small() -> None:
    """About ten seconds, at least five pictures a second."""
    assert _PICTURE.stat().st_size < _MAX_BYTES
    with Image.open(_PICTURE) as picture:
        frames: int = getattr(picture, "n_frames", 1)
        duration_ms = 0
        for frame in range(frames):
            picture.seek(frame)
            duration_ms += picture.info["duration"]
    assert 8_000 < duration_ms < 14_000
    assert frames >= 5 * duration_ms / 1000


def test_the_front_page_is_short() -> None:
    """README has at most 800 words, code included."""
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 800
