"""Make a model ready to run: fetch, convert, quantise, check; once per machine."""

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

from foremind.domain.errors import ModelUnusable
from foremind.retrieval.embedding.checksums import RECORD, ConvertedModel, changed_of, read_record
from foremind.retrieval.embedding.download import fetch_files, sha256_of
from foremind.retrieval.embedding.encoder import OnnxEncoder
from foremind.retrieval.embedding.manifest import Manifest
from foremind.retrieval.embedding.model_registry import PULLED_MANIFEST

MIN_COSINE = 0.98  # int8 against fp32
_INT8 = "model.int8.onnx"
_FP32 = "model.fp32.onnx"
_TOKENIZER = "tokenizer.json"
_SERVING = (_INT8, _TOKENIZER)
_KEPT = (_FP32, PULLED_MANIFEST)  # beside what serves
# Short and long, plain and odd: what quantisation could bend.
_SENTENCES = (
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
    """A model on this machine, ready to be loaded."""

    manifest: Manifest
    folder: Path

    def encoder(self) -> OnnxEncoder:
        """Load the int8 model that serves."""
        return self._load(_INT8)

    def reference_encoder(self) -> OnnxEncoder:
        """Load the fp32 model that the int8 one is measured against."""
        return self._load(_FP32)

    def _load(self, graph: str) -> OnnxEncoder:
        return OnnxEncoder(self.folder / graph, self.folder / _TOKENIZER, self.manifest.max_tokens)


def prepare_model(manifest: Manifest, models_dir: Path, say: Progress) -> ConvertedEncoder:
    """Return `manifest`'s model, fetching and converting it where that has not been done.

    What was converted is held to its hashes every time: a file that changed on the disk
    is made again from its source.

    Raises:
        ModelUnusable: it could not be fetched, or the conversion failed its checks.
    """
    folder = models_dir / manifest.folder_name
    record = read_record(folder)
    if record is not None and record.fingerprint == manifest.fingerprint:
        changed = _changed(folder, record)
        if changed is None:
            return ConvertedEncoder(manifest, folder)
        say(f"{folder / changed} is not what was converted; it is made again.")
        try:
            return _made(manifest, models_dir, say)
        except ModelUnusable as error:
            raise ModelUnusable(
                f"{folder / changed} is not what was converted, so it is not used. {error.message}"
            ) from error
    return _made(manifest, models_dir, say)


def _made(manifest: Manifest, models_dir: Path, say: Progress) -> ConvertedEncoder:
    """Fetch, convert, quantise and check a model, and put it where it belongs."""
    folder = models_dir / manifest.folder_name
    models_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{manifest.folder_name}.", dir=models_dir))
    try:
        say(f"Fetching {manifest.name} ...")
        source = scratch / "source"
        source.mkdir()
        fetch_files(manifest, source)
        made = scratch / "made"
        made.mkdir()
        say("Converting to ONNX and quantising to int8 ...")
        _convert(manifest, source, made)
        say("Checking the converted model ...")
        (made / PULLED_MANIFEST).write_bytes(msgspec.json.encode(manifest))
        record = ConvertedModel(
            manifest.fingerprint,
            {name: sha256_of(made / name) for name in (*_SERVING, *_KEPT)},
            check_model(ConvertedEncoder(manifest, made)),
        )
        (made / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        _put_in_place(made, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return ConvertedEncoder(manifest, folder)


def is_prepared(manifest: Manifest, models_dir: Path) -> bool:
    """Tell whether the model is ready on this machine, as it was converted."""
    folder = models_dir / manifest.folder_name
    record = read_record(folder)
    return (
        record is not None
        and record.fingerprint == manifest.fingerprint
        and _changed(folder, record) is None
    )


def check_model(model: ConvertedEncoder) -> dict[str, float]:
    """Compare int8 with fp32, and a near pair with a far one; return the cosines.

    Raises:
        ModelUnusable: the vectors cannot be trusted.
    """
    encoder, reference = model.encoder(), model.reference_encoder()
    texts = list(_SENTENCES)
    vectors = encoder.encode(texts)
    expected = (len(texts), model.manifest.dimension)
    if vectors.shape != expected:
        raise ModelUnusable(
            f"{model.manifest.name} gives vectors of {vectors.shape[1]} numbers, "
            f"its manifest says {expected[1]}",
            param="dimension",
        )
    fidelity = float(np.min(np.sum(vectors * reference.encode(texts), axis=1)))
    checks = model.manifest.checks
    near, far = (float(np.dot(*encoder.encode(pair))) for pair in (checks.near, checks.far))
    if fidelity < MIN_COSINE:
        raise ModelUnusable(f"int8 differs from fp32: cosine {fidelity:.3f} < {MIN_COSINE}")
    if near <= far:
        raise ModelUnusable(
            f"{checks.near} came out at {near:.3f}, not nearer than {checks.far} at {far:.3f}"
        )
    return {"least_cosine_to_fp32": fidelity, "near": near, "far": far}


def _convert(manifest: Manifest, source: Path, made: Path) -> None:
    """Write fp32 and int8 graphs and the tokenizer into `made`."""
    # onnx and its quantiser take a second to import and serve only here.
    import onnx  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    from foremind.retrieval.embedding.bert_graph import build_bert  # noqa: PLC0415
    from foremind.retrieval.embedding.pooling import append_pooling  # noqa: PLC0415

    if manifest.format == "safetensors":
        config = json.loads((source / "config.json").read_text("utf-8"))
        encoder = build_bert(source / "model.safetensors", config)
    else:
        encoder = onnx.load(source / "onnx/model.onnx")
    model = append_pooling(encoder, manifest.pooling, manifest.dimension)
    onnx.checker.check_model(model)
    onnx.save(model, made / _FP32)
    # The quantiser logs advice through the root logger that does not apply to this graph.
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(made / _FP32, made / _INT8, per_channel=True, weight_type=QuantType.QInt8)
    finally:
        logging.disable(logging.NOTSET)
    shutil.copyfile(source / _TOKENIZER, made / _TOKENIZER)


def _changed(folder: Path, record: ConvertedModel) -> str | None:
    """Return the name of a file that is not as it was converted, else None.

    What serves is always noted; earlier versions noted nothing else.
    """
    also = [each for each in _KEPT if each in record.files]
    return changed_of(folder, record, (*_SERVING, *also))


def _put_in_place(made: Path, folder: Path) -> None:
    """Move the finished folder to its name; two processes may do this at once."""
    stale = made.with_name("stale")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(stale)
    try:
        made.rename(folder)
    except OSError:
        # Another process was faster; its folder was made from the same manifest.
        if not os.path.isdir(folder):  # noqa: PTH112 - a race, not a path question
            raise
