"""Which embedding models are known: the shipped manifests and those pulled by name."""

from pathlib import Path

from foremind.assets import asset
from foremind.embedding.manifest import Manifest, read_manifest
from foremind.errors import ModelUnusable

PULLED_MANIFEST = "manifest.json"


def known_models(models_dir: Path) -> dict[str, Manifest]:
    """Return every known model by name; a shipped manifest wins over an older pulled copy."""
    paths = [
        *sorted(models_dir.glob(f"*/{PULLED_MANIFEST}")),
        *sorted(asset("models").glob("*.toml")),
    ]
    return {manifest.name: manifest for manifest in map(read_manifest, paths)}


def find_model(name: str, models_dir: Path) -> Manifest:
    """Return the manifest called `name`.

    Raises:
        ModelUnusable: no such model is known.
    """
    known = known_models(models_dir)
    if name not in known:
        raise ModelUnusable(
            f"No embedding model is called {name!r}. Known: {', '.join(sorted(known))}. "
            f"A model of the hub is added with: foremind models pull {name}"
        )
    return known[name]
