"""Prepares an embedding model, once per machine: fetch, convert, quantise, check."""

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from foremind_models.download import (
    RECORD,
    ConvertedModel,
    fetch_files,
    first_changed,
    read_record,
    sha256_of,
)
from foremind_models.encoder import OnnxEncoder
from foremind_models.manifest import Manifest, ModelUnusable
from foremind_models.registry import PULLED_MANIFEST

MIN_COSINE = 0.98  # between int8 and fp32 vectors of the same text
_INT8 = "model.int8.onnx"
_FP32 = "model.fp32.onnx"
_TOKENIZER = "tokenizer.json"
_SERVING_FILES = (_INT8, _TOKENIZER)
_OTHER_FILES = (_FP32, PULLED_MANIFEST)
#: Short and long, plain and unusual texts, to expose vectors that differ.
CHECK_TEXTS = (
    "hi",
    "The lighthouse keeper mends nets on Thursdays.",
    "my sister Ana is getting married in Porto next May and I still have no suit",
    "WHERE did you put the keys???",
    "I can't eat peanuts, they make my throat swell.",
    "ok so first we went to the market, then it rained, then we hid under the bridge for an hour "
    "and talked about whether ships have souls",
    "42 gold, 3 potions, 1 rusty sword",
    "Do you remember what I told you about my father?",
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ConvertedEncoder:
    """A converted model on this machine."""

    manifest: Manifest
    folder: Path

    def encoder(self) -> OnnxEncoder:
        """Load the int8 model, which the server uses."""
        return self._load(_INT8)

    def reference_encoder(self) -> OnnxEncoder:
        """Load the fp32 model, against which the int8 model is checked."""
        return self._load(_FP32)

    def _load(self, graph: str) -> OnnxEncoder:
        return OnnxEncoder(self.folder / graph, self.folder / _TOKENIZER, self.manifest.max_tokens)


def prepare_model(manifest: Manifest, models_dir: Path, say: Progress) -> ConvertedEncoder:
    """Return `manifest`'s model, fetching and converting it if that has not been done.

    Checksums of the converted files are verified every time; if a file has changed on disk, the
    model is converted again from its source.

    Raises:
        ModelUnusable: the model could not be fetched, or the conversion failed its checks.
    """
    folder = models_dir / manifest.folder_name
    record = read_record(folder)
    if record is not None and record.fingerprint == manifest.fingerprint:
        changed = _changed(folder, record)
        if changed is None:
            return ConvertedEncoder(manifest, folder)
        say(f"{folder / changed} is not what was converted; converting the model again.")
        try:
            return _convert_model(manifest, models_dir, say)
        except ModelUnusable as error:
            raise ModelUnusable(
                f"{folder / changed} is not what was converted, so it is not used. {error.message}"
            ) from error
    return _convert_model(manifest, models_dir, say)


def _convert_model(manifest: Manifest, models_dir: Path, say: Progress) -> ConvertedEncoder:
    """Fetch, convert, quantise and check a model, and move it into `models_dir`."""
    folder = models_dir / manifest.folder_name
    models_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{manifest.folder_name}.", dir=models_dir))
    try:
        say(f"Fetching {manifest.name} ...")
        source = scratch / "source"
        source.mkdir()
        fetch_files(manifest, source)
        converted = scratch / "made"
        converted.mkdir()
        say("Converting to ONNX and quantising to int8 ...")
        _write_graphs(manifest, source, converted)
        say("Checking the converted model ...")
        (converted / PULLED_MANIFEST).write_bytes(msgspec.json.encode(manifest))
        record = ConvertedModel(
            manifest.fingerprint,
            {name: sha256_of(converted / name) for name in (*_SERVING_FILES, *_OTHER_FILES)},
            check_model(ConvertedEncoder(manifest, converted)),
        )
        (converted / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        _install(converted, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return ConvertedEncoder(manifest, folder)


def is_prepared(manifest: Manifest, models_dir: Path) -> bool:
    """Return whether the model is converted on this machine and its checksums match."""
    folder = models_dir / manifest.folder_name
    record = read_record(folder)
    return (
        record is not None
        and record.fingerprint == manifest.fingerprint
        and _changed(folder, record) is None
    )


def check_model(model: ConvertedEncoder) -> dict[str, float]:
    """Compare int8 with fp32 vectors, and a similar pair with an unrelated one; return the cosines.

    Raises:
        ModelUnusable: a check failed.
    """
    encoder, reference = model.encoder(), model.reference_encoder()
    texts = list(CHECK_TEXTS)
    vectors = encoder.encode(texts)
    expected = (len(texts), model.manifest.dimension)
    if vectors.shape != expected:
        raise ModelUnusable(
            f"{model.manifest.name} gives vectors of {vectors.shape[1]} numbers, "
            f"but its manifest says {expected[1]}",
            param="dimension",
        )
    fidelity = float(np.min(np.sum(vectors * reference.encode(texts), axis=1)))
    checks = model.manifest.checks
    near, far = (float(np.dot(*encoder.encode(pair))) for pair in (checks.near, checks.far))
    # Comparisons that hold: no comparison with NaN does.
    if not fidelity >= MIN_COSINE:
        raise ModelUnusable(
            f"int8 differs from fp32: cosine {fidelity:.3f}, expected at least {MIN_COSINE}"
        )
    if not near > far:
        raise ModelUnusable(
            f"expected {checks.near} to be more similar than {checks.far}, "
            f"got cosines {near:.3f} and {far:.3f}"
        )
    return {"least_cosine_to_fp32": fidelity, "near": near, "far": far}


def _write_graphs(manifest: Manifest, source: Path, target: Path) -> None:
    """Write the fp32 and int8 graphs and the tokenizer into `target`."""
    # onnx and its quantiser take a second to import and are used only here.
    import onnx  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    from foremind_models.graphs import append_pooling, build_bert  # noqa: PLC0415

    if manifest.format == "safetensors":
        config = json.loads((source / "config.json").read_text("utf-8"))
        encoder = build_bert(source / "model.safetensors", config)
    else:
        encoder = onnx.load(source / "onnx/model.onnx")
    model = append_pooling(encoder, manifest.pooling, manifest.dimension)
    onnx.checker.check_model(model)
    onnx.save(model, target / _FP32)
    # The quantiser logs advice through the root logger that does not apply to this graph.
    logging.disable(logging.WARNING)
    try:
        # Weights of 7 bits: with 8, sums of two products saturate on x86 processors without VNNI,
        # and a text would have another vector there.
        quantize_dynamic(
            target / _FP32,
            target / _INT8,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)
    shutil.copyfile(source / _TOKENIZER, target / _TOKENIZER)


def _changed(folder: Path, record: ConvertedModel) -> str | None:
    """Return the name of a file that does not match its recorded checksum, else None."""
    return first_changed(folder, record, (*_SERVING_FILES, *_OTHER_FILES))


def _install(converted: Path, folder: Path) -> None:
    """Move a converted model to its final folder; two processes may do this at once."""
    stale = converted.with_name("stale")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(stale)
    try:
        converted.rename(folder)
    except OSError:
        # Another process was faster; it converted the same manifest.
        if not os.path.isdir(folder):  # noqa: PTH112 - a race, not a path question
            raise
