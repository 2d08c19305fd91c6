"""The known embedding models: shipped manifests and those of pulled models."""

from pathlib import Path

from foremind_models.download import first_changed, read_record
from foremind_models.manifest import HubSource, Manifest, ModelUnusable, read_manifest

PULLED_MANIFEST = "manifest.json"
SHIPPED = Path(__file__).parent / "shipped"


def known_models(models_dir: Path) -> dict[str, Manifest]:
    """Return every known model by name; a shipped manifest takes precedence over a pulled copy.

    Pulled manifests that fail their checksum, or cannot be read, are ignored.
    """
    shipped = shipped_models()
    shipped_folders = {manifest.folder_name for manifest in shipped.values()}
    pulled = [
        _readable(path)
        for path in sorted(models_dir.glob(f"*/{PULLED_MANIFEST}"))
        if path.parent.name not in shipped_folders and not _damaged(path.parent)
    ]
    return {manifest.name: manifest for manifest in pulled if manifest is not None} | shipped


def shipped_models() -> dict[str, Manifest]:
    """Return the models whose manifests ship with this package, by name."""
    manifests = (read_manifest(path) for path in sorted(SHIPPED.glob("*.toml")))
    return {manifest.name: manifest for manifest in manifests}


def shipped_name(repository: str) -> str | None:
    """Return what the model of a hub repository is called here; None if it is not shipped."""
    for manifest in shipped_models().values():
        for source in manifest.sources:
            if isinstance(source, HubSource) and source.repo == repository:
                return manifest.name
    return None


def find_model(name: str, models_dir: Path) -> Manifest:
    """Return the manifest called `name`.

    Raises:
        ModelUnusable: no such model is known, or its manifest fails its checksum or cannot be read.
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
    if (folder / PULLED_MANIFEST).exists():
        read_manifest(folder / PULLED_MANIFEST)  # says why it is not known
    raise ModelUnusable(
        f"No embedding model is called {name!r} here. Known: {', '.join(sorted(known))}. "
        f"{_how_to_add(name)}"
    )


def _how_to_add(name: str) -> str:
    """Say how a model that is not known could be added."""
    if (shipped := shipped_name(name)) is not None:
        return f"This one is called {shipped}: foremind models pull {shipped}"
    if "/" in name:
        return f"Add this one from the model hub with: foremind models pull {name}"
    return (
        "Add one of the model hub by its whole name: foremind models pull ORGANISATION/NAME; "
        f"or one in a folder under this name: foremind models pull {name} --from FOLDER"
    )


def _readable(path: Path) -> Manifest | None:
    try:
        return read_manifest(path)
    except ModelUnusable:
        return None


def _damaged(folder: Path) -> bool:
    """Return whether a pulled manifest does not match its recorded checksum, if there is one."""
    record = read_record(folder)
    if record is None or PULLED_MANIFEST not in record.files:
        return False
    return first_changed(folder, record, [PULLED_MANIFEST]) is not None
