"""The calibration measured for a pulled model: a file beside its folder, with a checksum."""

import hashlib
from pathlib import Path
from uuid import uuid4

import msgspec

from foremind_models.classifier_training import ClassifierFile, TextFeatures, are_of
from foremind_models.manifest import Manifest, ModelUnusable

# Incremented when something else is measured, or measured otherwise.
METHOD = 2


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured with one vector space; the fields are those of a manifest.

    `classifiers` is None if they judged too few texts rightly.
    """

    fingerprint: str
    method: int
    calibration: dict[str, float]
    passage_calibration: dict[str, float]
    repetition: float
    floor: float
    classifiers: ClassifierFile | None


class _Origin(msgspec.Struct, frozen=True):
    """What every version of the file says: of which vectors it is, and how these were measured."""

    fingerprint: str
    method: int = 1


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    measured: msgspec.Raw


def write_measured(manifest: Manifest, models_dir: Path, measured: Measured) -> Path:
    """Store a calibration, in place of the last one; return its path. Several may do so at once.

    Raises:
        OSError: it cannot be stored; the last one is still there.
    """
    content = msgspec.json.encode(measured)
    stored = _Stored(hashlib.sha256(content).hexdigest(), msgspec.Raw(content))
    path = _path(manifest, models_dir)
    unfinished = path.with_suffix(f".{uuid4().hex}.new")
    try:
        unfinished.write_bytes(msgspec.json.encode(stored) + b"\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def read_measured(manifest: Manifest, models_dir: Path) -> Measured | None:
    """Return the calibration of a model; None if there is none that fits.

    It may be of other files or other prefixes, or measured as another version does.

    Raises:
        ModelUnusable: the file is not what was written.
    """
    path = _path(manifest, models_dir)
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        if hashlib.sha256(stored.measured).hexdigest() != stored.sha256:
            raise _damaged(path, manifest)
        origin = msgspec.json.decode(stored.measured, type=_Origin)
        if (origin.fingerprint, origin.method) != (manifest.fingerprint, METHOD):
            return None
        return msgspec.json.decode(stored.measured, type=Measured)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        raise _damaged(path, manifest) from None


def usable_classifiers(
    measured: Measured, manifest: Manifest, features: TextFeatures
) -> ClassifierFile | None:
    """Return the classifiers, unless they are of another version of the text features."""
    file = measured.classifiers
    return file if file is not None and are_of(file, manifest, features) else None


def _path(manifest: Manifest, models_dir: Path) -> Path:
    return models_dir / f"{manifest.folder_name}.calibration.json"


def _damaged(path: Path, manifest: Manifest) -> ModelUnusable:
    return ModelUnusable(
        f"{path} is not what was measured, so it is not used. Measure again: "
        f"foremind models calibrate {manifest.name}"
    )
