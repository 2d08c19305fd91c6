"""Where the files that travel with the code are: SQL, model manifests, the page."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def asset(name: str) -> Path:
    """Return the folder `name`: inside the installed wheel, else at the top of the checkout."""
    packed = _PACKAGE / "_assets" / name
    return packed if packed.is_dir() else _PACKAGE.parents[1] / name
