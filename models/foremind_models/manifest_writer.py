"""Generates manifests for models without one: a local folder or a repository of the hub."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from foremind_models.download import hub_reason, quiet_hub, sha256_of
from foremind_models.manifest import (
    MAX_DIMENSION,
    FolderSource,
    HubSource,
    Manifest,
    ModelUnusable,
    Source,
)
from foremind_models.registry import shipped_models

_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_ONNX = "onnx/model.onnx"
_SAFETENSORS = "model.safetensors"
_MODULES = "modules.json"
_POOLING = "1_Pooling/config.json"
_LENGTH = "sentence_bert_config.json"
_CONVERTIBLE = ("bert",)
_NOT_FOUND = (401, 403, 404)  # the hub asks whoever has not signed in to, even if there is nothing
# Modules of sentence-transformers; the vectors of every model are normalised.
_SUPPORTED_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLING_MODES: dict[str, Literal["mean", "cls"]] = {
    "mean": "mean",
    "mean_tokens": "mean",
    "cls": "cls",
    "cls_token": "cls",
}


Shape = TypeVar("Shape", dict[str, Any], list[Any])


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The prefixes that the model expects before a query and before a passage."""

    query: str = ""
    passage: str = ""


def describe_folder(name: str, folder: Path, prefixes: Prefixes) -> Manifest:
    """Describe the model in `folder`, which must have the layout of a hub repository.

    The files of a model that ships must be the ones that its manifest names.
    """
    if not folder.is_dir():
        raise ModelUnusable(f"{folder} is not a folder")
    source = FolderSource(path=str(folder.resolve()))
    shipped = shipped_models().get(name)
    if shipped is not None:
        return replace(shipped, sources=(source,))
    return _describe(name, folder, source, "unknown", prefixes)


def describe_hub(name: str, prefixes: Prefixes) -> Manifest:
    """Describe repository `name` at its current revision, which the manifest pins."""
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - slow, rarely needed

    quiet_hub()
    try:
        info = HfApi().model_info(name)
        available = {entry.rfilename for entry in info.siblings or ()}
        weights = _SAFETENSORS if _SAFETENSORS in available else _ONNX
        required = [_CONFIG, _TOKENIZER, _MODULES, _POOLING, _LENGTH, weights]
        revision = str(info.sha)
        with tempfile.TemporaryDirectory() as scratch:
            snapshot_download(name, revision=revision, allow_patterns=required, local_dir=scratch)
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
        raise ModelUnusable(_hub_failure(name, error)) from error


def _hub_failure(name: str, error: Exception) -> str:
    """Say what went wrong between this machine and the hub, and what to do."""
    response = getattr(error, "response", None)
    if getattr(response, "status_code", None) in _NOT_FOUND:
        return (
            f"The hub has no usable model {name!r}: it does not exist, or it is not public. "
            "Check its name, ORGANISATION/NAME."
        )
    wanted = f"{_CONFIG}, {_TOKENIZER}, {_SAFETENSORS} or {_ONNX}"
    described = f"{_MODULES}, {_POOLING} and {_LENGTH}"
    return (
        f"The model hub cannot be reached: {hub_reason(error)}. HF_ENDPOINT names another than "
        "huggingface.co. Without a hub, copy the model's files into a folder, with the folders "
        f"that they are in: {wanted}, and where there are such {described}; "
        f"then run: foremind models pull {name} --from FOLDER"
    )


def _describe(
    name: str, folder: Path, source: Source, licence: str, prefixes: Prefixes
) -> Manifest:
    config = _read_json(folder / _CONFIG)
    weights_format: Literal["safetensors", "onnx"]
    if (folder / _SAFETENSORS).is_file() and config.get("model_type") in _CONVERTIBLE:
        weights_format, weights = "safetensors", _SAFETENSORS
    elif (folder / _ONNX).is_file():
        weights_format, weights = "onnx", _ONNX
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
    length = _read_json(folder / _LENGTH) if (folder / _LENGTH).is_file() else {}
    max_positions = int(config.get("max_position_embeddings", 512))
    return Manifest(
        name=name,
        licence=licence,
        dimension=dimension,
        max_tokens=min(int(length.get("max_seq_length") or 256), max_positions, 512),
        pooling=_pooling(name, folder),
        format=weights_format,
        files={file: sha256_of(folder / file) for file in (_CONFIG, _TOKENIZER, weights)},
        sources=(source,),
        query_prefix=prefixes.query,
        passage_prefix=prefixes.passage,
    )


def _pooling(name: str, folder: Path) -> Literal["mean", "cls"]:
    """Return how the model pools token vectors; `mean` if its files do not say.

    Raises:
        ModelUnusable: the pooling is not supported, or is followed by an unsupported module.
    """
    modules = _read(folder / _MODULES, list) if (folder / _MODULES).is_file() else []
    for module in modules:
        kind = str(module.get("type") if isinstance(module, dict) else module).rpartition(".")[2]
        if kind not in _SUPPORTED_MODULES:
            raise ModelUnusable(
                f"{name}: {_MODULES}: expected only {', '.join(_SUPPORTED_MODULES)}; got a {kind} "
                "layer, which is not supported, and without which the vectors would be wrong"
            )
    config = _read_json(folder / _POOLING) if (folder / _POOLING).is_file() else {}
    modes = [
        key.removeprefix("pooling_mode_")
        for key, used in config.items()
        if key.startswith("pooling_mode_") and used
    ]
    if "pooling_mode" in config:
        modes.append(str(config["pooling_mode"]))
    if not modes:
        return "mean"
    if len(modes) > 1 or modes[0] not in _POOLING_MODES:
        raise ModelUnusable(
            f"{name}: {_POOLING}: expected pooling by mean_tokens or cls_token; "
            f"{' and '.join(modes)} is not supported"
        )
    return _POOLING_MODES[modes[0]]


def _read_json(path: Path) -> dict[str, Any]:
    return _read(path, dict)


def _read(path: Path, shape: type[Shape]) -> Shape:
    try:
        loaded = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path.name} cannot be read: {error}") from None
    if not isinstance(loaded, shape):
        expected = "object" if shape is dict else "array"
        raise ModelUnusable(f"{path.name}: expected a JSON {expected}")
    return loaded
