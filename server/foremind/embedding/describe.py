"""Write a manifest for a model that has none: a folder, or a repository of the hub."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from foremind.embedding.fetch import sha256_of
from foremind.embedding.manifest import (
    MAX_DIMENSION,
    FolderSource,
    HubSource,
    Manifest,
    Source,
)
from foremind.errors import ModelUnusable

_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_ONNX = "onnx/model.onnx"
_SAFETENSORS = "model.safetensors"
_POOLING = "1_Pooling/config.json"
_LENGTH = "sentence_bert_config.json"
_CONVERTIBLE = ("bert",)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What the model wants before a query and before a passage."""

    query: str = ""
    passage: str = ""


def describe_folder(name: str, folder: Path, prefixes: Prefixes) -> Manifest:
    """Describe the model in `folder`, which must hold the files the hub would."""
    if not folder.is_dir():
        raise ModelUnusable(f"{folder} is not a folder")
    source = FolderSource(path=str(folder.resolve()))
    return _describe(name, folder, source, "unknown", prefixes)


def describe_hub(name: str, prefixes: Prefixes) -> Manifest:
    """Describe repository `name` at its present revision, which the manifest then pins."""
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - slow, rarely needed

    try:
        info = HfApi().model_info(name)
        present = {entry.rfilename for entry in info.siblings or ()}
        weights = _SAFETENSORS if _SAFETENSORS in present else _ONNX
        wanted = [_CONFIG, _TOKENIZER, _POOLING, _LENGTH, weights]
        revision = str(info.sha)
        with tempfile.TemporaryDirectory() as scratch:
            snapshot_download(name, revision=revision, allow_patterns=wanted, local_dir=scratch)
            config = _read_json(Path(scratch) / _CONFIG)
            if weights == _SAFETENSORS and config.get("model_type") not in _CONVERTIBLE:
                snapshot_download(
                    name, revision=revision, allow_patterns=[_ONNX], local_dir=scratch
                )
            licence = str(info.card_data.get("license")) if info.card_data else "unknown"
            source = HubSource(repo=name, revision=revision)
            return _describe(name, Path(scratch), source, licence, prefixes)
    except ModelUnusable:
        raise
    except Exception as error:  # the hub's client raises many unrelated types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelUnusable(
            f"The hub has no usable model {name!r}, or cannot be reached: {reason}"
        ) from error


def _describe(
    name: str, folder: Path, source: Source, licence: str, prefixes: Prefixes
) -> Manifest:
    config = _read_json(folder / _CONFIG)
    kind: Literal["safetensors", "onnx"]
    if (folder / _SAFETENSORS).is_file() and config.get("model_type") in _CONVERTIBLE:
        kind, weights = "safetensors", _SAFETENSORS
    elif (folder / _ONNX).is_file():
        kind, weights = "onnx", _ONNX
    else:
        raise ModelUnusable(
            f"{name}: expected {_ONNX}, or {_SAFETENSORS} of model_type "
            f"{' or '.join(_CONVERTIBLE)} (this is {config.get('model_type')!r})"
        )
    if not (folder / _TOKENIZER).is_file():
        raise ModelUnusable(f"{name}: expected {_TOKENIZER}")
    dimension = int(config.get("hidden_size", 0))
    if not 1 <= dimension <= MAX_DIMENSION:
        raise ModelUnusable(f"{name}: hidden_size: expected 1 to {MAX_DIMENSION}, got {dimension}")
    pooling = _read_json(folder / _POOLING) if (folder / _POOLING).is_file() else {}
    length = _read_json(folder / _LENGTH) if (folder / _LENGTH).is_file() else {}
    longest = int(config.get("max_position_embeddings", 512))
    return Manifest(
        name=name,
        licence=licence,
        dimension=dimension,
        max_tokens=min(int(length.get("max_seq_length") or 256), longest, 512),
        pooling="cls" if pooling.get("pooling_mode_cls_token") else "mean",
        format=kind,
        files={each: sha256_of(folder / each) for each in (_CONFIG, _TOKENIZER, weights)},
        sources=(source,),
        query_prefix=prefixes.query,
        passage_prefix=prefixes.passage,
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path.name} cannot be read: {error}") from None
    if not isinstance(loaded, dict):
        raise ModelUnusable(f"{path.name}: expected a JSON object")
    return loaded
