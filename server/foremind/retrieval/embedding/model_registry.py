"""Which embedding models are known: the shipped manifests and those pulled by name."""

from pathlib import Path

from foremind.domain.errors import ModelUnusable
from foremind.retrieval.embedding.checksums import changed_of, read_record
from foremind.retrieval.embedding.manifest import Manifest, read_manifest
from foremind.runtime.assets import asset

PULLED_MANIFEST = "manifest.json"


def known_models(models_dir: Path) -> dict[str, Manifest]:
    """Return every known model by name; a shipped manifest wins over an older pulled copy.

    What was pulled and is no longer what it was is not among them.
    """
    shipped = [read_manifest(path) for path in sorted(asset("models").glob("*.toml"))]
    ours = {each.folder_name for each in shipped}
    pulled = [
        read_manifest(path)
        for path in sorted(models_dir.glob(f"*/{PULLED_MANIFEST}"))
        if path.parent.name not in ours and not _damaged(path.parent)
    ]
    return {manifest.name: manifest for manifest in (*pulled, *shipped)}


def find_model(name: str, models_dir: Path) -> Manifest:
    """Return the manifest called `name`.

    Raises:
        ModelUnusable: no such model is known, or its manifest is no longer what it was.
    """
    known = known_models(models_dir)
    if name in known:
        return known[name]
    folder = models_dir / name.replace("/", "--")
    if _damaged(folder):
        raise ModelUnusable(
            f"{folder / PULLED_MANIFEST} is not what was pulled, so it is not used. Pull the model "
            f"again, with the options as before: foremind models pull {name}"
        )
    raise ModelUnusable(
        f"No embedding model is called {name!r}. Known: {', '.join(sorted(known))}. "
        f"A model of the hub is added with: foremind models pull {name}"
    )


def _damaged(folder: Path) -> bool:
    """Tell whether a pulled manifest is not what was noted of it, if anything was."""
    record = read_record(folder)
    if record is None or PULLED_MANIFEST not in record.files:
        return False
    return changed_of(folder, record, [PULLED_MANIFEST]) is not None
