"""Locates the files that ship with the code: SQL, the page."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def asset(name: str) -> Path:
    """Return the folder `name` in the installed wheel, or else at the root of the checkout."""
    packaged = _PACKAGE / "_assets" / name
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / name
