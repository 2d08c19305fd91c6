"""The record of a converted model: checksums by which its files are verified before use."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from foremind.retrieval.embedding.download import sha256_of

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
