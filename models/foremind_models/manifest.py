"""Model manifests: where an embedding model comes from and how to use it."""

import hashlib
import tomllib
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec


class ModelUnusable(Exception):
    """An embedding model could not be fetched, converted or verified.

    The message says what is to be done; `param` is the field of a manifest that is wrong, if any.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


# Incremented when conversion or quantisation changes the resulting vectors.
CONVERTER_VERSION = 2
# Vectors are stored in a covering index: two bytes per number, at most 2,704 bytes per entry.
MAX_DIMENSION = 1280


class PackageSource(msgspec.Struct, frozen=True, tag="package", tag_field="kind"):
    """A package of the configured package index whose wheel contains the files in `folder`."""

    name: str
    version: str
    sha256: str
    folder: str


class HubSource(msgspec.Struct, frozen=True, tag="hub", tag_field="kind"):
    """A repository of the model hub at one fixed revision."""

    repo: str
    revision: str


class FolderSource(msgspec.Struct, frozen=True, tag="folder", tag_field="kind"):
    """A folder on this machine."""

    path: str


Source = PackageSource | HubSource | FolderSource


class Checks(msgspec.Struct, frozen=True):
    """A pair of sentences that must be more similar than an unrelated pair."""

    near: tuple[str, str] = ("The weather was lovely today.", "Today the weather was so lovely!")
    far: tuple[str, str] = ("The weather was lovely today.", "Interest rates rose by a quarter.")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One embedding model.

    `files` maps each required file to its SHA-256. `pooling` is how token vectors are combined.
    The prefixes are prepended to queries and passages, as in the model's training. `calibration`
    maps cosines published for other models to the equivalent cosines of this one, between a query
    and a passage; `passage_calibration` does so between two passages, and is the same if it is
    empty. `repetition` is the cosine from which one statement may repeat another; if it is not
    known, only the same words do. `floor` is the cosine that counts as 0 in a score. `languages`
    are the codes of those whose texts it embeds by meaning; if none is named, all.
    """

    name: str
    licence: str
    dimension: int
    max_tokens: int
    pooling: Literal["mean", "cls"]
    format: Literal["safetensors", "onnx"]
    files: dict[str, str]
    sources: tuple[Source, ...]
    query_prefix: str = ""
    passage_prefix: str = ""
    checks: Checks = Checks()
    calibration: dict[str, float] = {}
    passage_calibration: dict[str, float] = {}
    repetition: float | None = None
    floor: float = 0.0
    languages: tuple[str, ...] = ()

    @property
    def same_for_query_and_passage(self) -> bool:
        """Whether a text has one vector, as a query and as a passage."""
        return self.query_prefix == self.passage_prefix

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the vector space: only vectors with equal fingerprints are comparable."""
        vector_inputs = (
            CONVERTER_VERSION,
            sorted(self.files.items()),
            self.pooling,
            self.max_tokens,
            self.query_prefix,
            self.passage_prefix,
        )
        return hashlib.sha256(msgspec.json.encode(vector_inputs)).hexdigest()[:16]

    @property
    def folder_name(self) -> str:
        """The name as a single path component."""
        return self.name.replace("/", "--")


def read_manifest(path: Path) -> Manifest:
    """Read a TOML (shipped) or JSON (written by `models pull`) manifest.

    Raises:
        ModelUnusable: the file is not a valid manifest; the message names the field.
    """
    try:
        raw = path.read_bytes()
        data = tomllib.loads(raw.decode()) if path.suffix == ".toml" else msgspec.json.decode(raw)
        manifest = msgspec.convert(data, Manifest)
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise ModelUnusable(f"{path} is not a model manifest: {error}") from None
    if not 1 <= manifest.dimension <= MAX_DIMENSION:
        raise ModelUnusable(
            f"{path}: dimension: expected 1 to {MAX_DIMENSION}, got {manifest.dimension}",
            param="dimension",
        )
    return manifest


UNREACHED = 1.1  # above every cosine


def calibrated_cosine(manifest: Manifest, published: float) -> float:
    """Return the cosine of a query and a passage that corresponds to a published one.

    Linear interpolation between the calibration points of the manifest, clamped to the outermost.
    Without calibration it is one that no texts reach: where a model has all cosines above 0.7, the
    published ones would recall, merge and erase everything.
    """
    return _interpolated(manifest.calibration, published)


def calibrated_passage_cosine(manifest: Manifest, published: float) -> float:
    """Return the cosine of two passages that corresponds to a published one.

    As `calibrated_cosine`. A text that is embedded as a query is further from a passage than one
    that is embedded as a passage, where the model has a prefix for either.
    """
    return _interpolated(manifest.passage_calibration or manifest.calibration, published)


def _interpolated(calibration: Mapping[str, float], published: float) -> float:
    points = sorted((float(other), cosine) for other, cosine in calibration.items())
    if not points:
        return UNREACHED
    for (low, low_cosine), (high, high_cosine) in pairwise(points):
        if low <= published <= high:
            share = (published - low) / (high - low)
            return low_cosine + share * (high_cosine - low_cosine)
    return points[0][1] if published < points[0][0] else points[-1][1]
