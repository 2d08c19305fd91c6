"""The known embedding models: shipped manifests and those of pulled models."""

from pathlib import Path

from foremind.domain.errors import ModelUnusable
from foremind.retrieval.embedding.checksums import first_changed, read_record
from foremind.retrieval.embedding.manifest import Manifest, read_manifest
from foremind.runtime.assets import asset

PULLED_MANIFEST = "manifest.json"


def known_models(models_dir: Path) -> dict[str, Manifest]:
    """Return every known model by name; a shipped manifest takes precedence over a pulled copy.

    Pulled manifests that fail their checksum are ignored.
    """
    shipped = [read_manifest(path) for path in sorted(asset("models").glob("*.toml"))]
    shipped_folders = {manifest.folder_name for manifest in shipped}
    pulled = [
        read_manifest(path)
        for path in sorted(models_dir.glob(f"*/{PULLED_MANIFEST}"))
        if path.parent.name not in shipped_folders and not _damaged(path.parent)
    ]
    return {manifest.name: manifest for manifest in (*pulled, *shipped)}


def find_model(name: str, models_dir: Path) -> Manifest:
    """Return the manifest called `name`.

    Raises:
        ModelUnusable: no such model is known, or its manifest fails its checksum.
    """
    known = known_models(models_dir)
    if name in known:
        return known[name]
    folder = models_dir / name.replace("/", "--")
    if _damaged(folder):
        raise ModelUnusable(
            f"{folder / PULLED_MANIFEST} is not what was pulled, so it is not used. Pull the model "
            f"again with the same options: foremind models pull {name}"
        )
    raise ModelUnusable(
        f"No embedding model is called {name!r}. Known: {', '.join(sorted(known))}. "
        f"Add one from the hub with: foremind models pull {name}"
    )


def _damaged(folder: Path) -> bool:
    """Return whether a pulled manifest does not match its recorded checksum, if there is one."""
    record = read_record(folder)
    if record is None or PULLED_MANIFEST not in record.files:
        return False
    return first_changed(folder, record, [PULLED_MANIFEST]) is not None
