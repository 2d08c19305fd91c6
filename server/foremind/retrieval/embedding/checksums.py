"""What was converted, file by file: what is used later is held to it."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from foremind.retrieval.embedding.download import sha256_of

RECORD = "prepared.json"


class ConvertedModel(msgspec.Struct, frozen=True):
    """What was converted: its files by name, with their SHA-256, and how it did."""

    fingerprint: str
    files: dict[str, str]
    checks: dict[str, float]


def read_record(folder: Path) -> ConvertedModel | None:
    """Return what is noted of a converted model, None where nothing is."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=ConvertedModel)
    except (OSError, msgspec.DecodeError):
        return None


def changed_of(folder: Path, record: ConvertedModel, names: Iterable[str]) -> str | None:
    """Return the first of these files that is not as it was converted, else None."""
    for name in names:
        try:
            if sha256_of(folder / name) != record.files.get(name):
                return name
        except OSError:
            return name
    return None
