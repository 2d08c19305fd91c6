"""Embedding models: converted without PyTorch, checked, and never trusted unseen."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file

from foremind.domain.clock import SystemClock
from foremind.retrieval.embedding.service import EmbeddingService, LocalBackend, Priority, Vector
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind_eval.doubles.random_model import write_random_model
from foremind_models import (
    ConvertedEncoder,
    Manifest,
    ModelUnusable,
    Prefixes,
    describe_folder,
    find_model,
    is_prepared,
    known_models,
    prepare_model,
    shipped_models,
)
from foremind_models.graphs import build_bert
from foremind_models.manifest import FolderSource, PackageSource


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A hub folder with a 768-dimension encoder of random weights and CLS pooling."""
    folder = tmp_path_factory.mktemp("hub") / "random-768"
    write_random_model(folder, dimension=768)
    yield folder


def test_embedding_reports_nothing_to_anyone(model: ConvertedEncoder, tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would leave an identifier and a queue in the home directory."""
    program = (
        "import pathlib, sys;"
        "from foremind_models.conversion import prepare_model;"
        "from foremind_models.registry import find_model;"
        "models = pathlib.Path(sys.argv[2]);"
        "prepare_model(find_model(sys.argv[1], models), models, print).encoder()"
    )
    subprocess.run(
        [sys.executable, "-c", program, model.manifest.name, str(model.folder.parent)],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, check=True,
    )  # fmt: skip
    assert list(tmp_path.rglob("*")) == []


def test_the_default_model_knows_near_from_far(model: ConvertedEncoder) -> None:
    """Cosines of the published model, on its own scale."""
    vectors = model.encoder().encode(
        ["sunny weather", "beautiful day", "quantum physics", "remember when it rained?"]
    )
    cosines = vectors @ vectors.T
    assert cosines[0, 1] == pytest.approx(0.41, abs=0.03)
    assert cosines[0, 2] == pytest.approx(0.05, abs=0.03)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_quantising_keeps_the_meaning(model: ConvertedEncoder) -> None:
    """int8 against fp32 on sentences that the check itself did not see."""
    texts = [
        "We rowed to the island at dusk.",
        "I never liked Mondays.",
        "Did the tea help with your cold?",
    ]
    fast, exact = model.encoder().encode(texts), model.reference_encoder().encode(texts)
    assert np.sum(fast * exact, axis=1).min() >= 0.98


def test_no_processor_rounds_the_sums_of_the_model(model: ConvertedEncoder) -> None:
    """Two products of an 8-bit input fit 16 bits, in which x86 without VNNI adds them."""
    graph = onnx.load(model.folder / "model.int8.onnx").graph
    weights = [
        onnx.numpy_helper.to_array(tensor).astype(int)
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 2
    ]
    assert len(weights) > 30
    assert max(int(np.abs(weight).max()) for weight in weights) * 255 * 2 < 2**15


def test_a_text_has_one_vector_whatever_stands_beside_it(model: ConvertedEncoder) -> None:
    """So that a draft's vector can serve as the stored one."""
    encoder = model.encoder()
    alone = encoder.encode(["rain"])[0]
    beside = encoder.encode(["rain", "a much longer text about ships and harbours " * 5])[0]
    np.testing.assert_array_equal(alone, beside)


def test_long_texts_are_cut_to_the_models_length(model: ConvertedEncoder) -> None:
    """Not refused."""
    assert model.encoder().count_tokens("word " * 5000) == model.manifest.max_tokens


def test_a_768_dimension_cls_model_goes_through_the_same_converter(
    random_folder: Path, tmp_path: Path
) -> None:
    """Described, converted, quantised and checked like the default."""
    manifest = describe_folder("example/random-768", random_folder, Prefixes("query: ", ""))
    assert (manifest.dimension, manifest.pooling, manifest.format) == (768, "cls", "safetensors")
    prepared = prepare_model(manifest, tmp_path, print)
    assert prepared.encoder().encode(["rain", "boat"]).shape == (2, 768)
    assert find_model("example/random-768", tmp_path) == manifest
    with pytest.raises(ModelUnusable, match="No embedding model"):
        find_model("example/other", tmp_path)


def test_a_multilingual_tokenizer_goes_through_the_same_converter(tmp_path: Path) -> None:
    """Unigrams with spaces as letters and no token types, as in XLM-R."""
    folder = tmp_path / "unigrams"
    write_random_model(folder, dimension=48, heads=4, cls=False, unigrams=2_000)
    manifest = describe_folder("a/unigrams", folder, Prefixes("query: ", "passage: "))
    encoder = prepare_model(manifest, tmp_path / "m", print).encoder()
    assert encoder.count_tokens("the weather was lovely") == 6
    assert encoder.encode(["the weather", "погода", "天気", ""]).shape == (4, 48)
    assert encoder.word_share("weather") == 1.0
    assert encoder.word_share("weath") == 0.0


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("my-model", "foremind models pull ORGANISATION/NAME"),
        ("my-model", "foremind models pull my-model --from FOLDER"),
        ("example/model", "hub with: foremind models pull example/model"),
        ("intfloat/multilingual-e5-small", "is called multilingual-e5-small"),
    ],
)
def test_an_unknown_name_is_answered_with_what_can_be_done(
    tmp_path: Path, name: str, advice: str
) -> None:
    """Not with the command that was just tried."""
    with pytest.raises(ModelUnusable, match=re.escape(advice)):
        find_model(name, tmp_path)


@pytest.mark.parametrize("content", ['{"name": "broken"', '{"name": "broken", "later_field": 1}'])
def test_a_manifest_that_cannot_be_read_stops_only_its_own_model(
    tmp_path: Path, content: str
) -> None:
    """Of a later version, or cut off; whoever asks for it is told which file it is."""
    for folder in ("broken", "folder"):
        (tmp_path / folder).mkdir()
    (tmp_path / "broken" / "manifest.json").write_text(content)
    (tmp_path / "folder" / "manifest.json").mkdir()
    assert set(known_models(tmp_path)) == set(shipped_models())
    assert find_model("all-MiniLM-L6-v2", tmp_path).dimension == 384
    for name, why in (("broken", "is not a model manifest"), ("folder", "cannot be read")):
        with pytest.raises(ModelUnusable, match=rf"{name}/manifest\.json {why}"):
            find_model(name, tmp_path)


def test_an_onnx_folder_is_pooled_like_converted_weights(
    random_folder: Path, tmp_path: Path
) -> None:
    """`onnx/model.onnx` gives token vectors; the same pooling follows."""
    config = json.loads((random_folder / "config.json").read_text())
    folder = tmp_path / "onnx-folder"
    (folder / "onnx").mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(random_folder / name, folder / name)
    shutil.copytree(random_folder / "1_Pooling", folder / "1_Pooling")
    exported = build_bert(random_folder / "model.safetensors", config)
    # Published exports take token types as well, and know the hidden size only by name.
    exported.graph.input.append(
        helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, ["batch", "tokens"])
    )
    onnx.save(exported, folder / "onnx" / "model.onnx")
    from_onnx = prepare_model(describe_folder("a/onnx", folder, Prefixes()), tmp_path / "m", print)
    from_weights = prepare_model(
        describe_folder("a/weights", random_folder, Prefixes()), tmp_path / "m", print
    )
    np.testing.assert_allclose(
        from_onnx.encoder().encode(["my sister"]),
        from_weights.encoder().encode(["my sister"]),
        atol=1e-5,
    )


def test_a_file_with_another_hash_is_never_used(random_folder: Path, tmp_path: Path) -> None:
    """The message says which file, and what to do."""
    folder = tmp_path / "tampered"
    shutil.copytree(random_folder, folder)
    manifest = describe_folder("a/tampered", folder, Prefixes())
    with (folder / "tokenizer.json").open("a") as tokenizer:
        tokenizer.write(" ")
    with pytest.raises(
        ModelUnusable, match=r"(?s)tokenizer\.json has SHA-256.*--from FOLDER"
    ) as said:
        prepare_model(manifest, tmp_path / "m", print)
    assert "was not used" in said.value.message
    assert not list((tmp_path / "m").iterdir())


def test_a_model_whose_vectors_are_no_numbers_is_refused(
    random_folder: Path, tmp_path: Path
) -> None:
    """Its weights may have been damaged before they were hashed."""
    folder = tmp_path / "no-numbers"
    shutil.copytree(random_folder, folder)
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.LayerNorm.bias"][:] = np.nan
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelUnusable, match="cosine nan"):
        prepare_model(describe_folder("a/nan", folder, Prefixes()), tmp_path / "m", print)


def test_a_converted_file_that_changed_is_never_used(random_folder: Path, tmp_path: Path) -> None:
    """It is made again where its source is there; else the server does not start, and says why."""
    folder, models = tmp_path / "source", tmp_path / "models"
    shutil.copytree(random_folder, folder)
    manifest = describe_folder("a/damaged", folder, Prefixes())
    prepared = prepare_model(manifest, models, print)
    for name in ("tokenizer.json", "model.int8.onnx", "model.fp32.onnx", "manifest.json"):
        file = prepared.folder / name
        good = file.read_bytes()
        middle = len(good) // 2
        flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
        for damaged in (flipped, good[:-1], b""):
            file.write_bytes(damaged)
            assert not is_prepared(manifest, models)
        file.unlink()
        assert not is_prepared(manifest, models)
        file.write_bytes(good)
        assert is_prepared(manifest, models)
    file.write_bytes(flipped)
    said: list[str] = []
    again = prepare_model(manifest, models, said.append)
    assert f"{file} is not what was converted" in said[0]
    assert again.encoder().encode(["rain"]).shape == (1, 768)
    assert is_prepared(manifest, models)
    file.write_bytes(flipped)
    shutil.rmtree(folder)
    with pytest.raises(ModelUnusable, match=r"(?s)is not what was converted.*--from FOLDER"):
        prepare_model(manifest, models, said.append)


def test_a_pulled_manifest_that_changed_is_never_used(random_folder: Path, tmp_path: Path) -> None:
    """Any byte of it: the refusal says what to do, and doing so mends it."""
    manifest = describe_folder("a/pulled", random_folder, Prefixes())
    prepared = prepare_model(manifest, tmp_path, print)
    file = prepared.folder / "manifest.json"
    good = file.read_bytes()
    for damaged in (good.replace(b'"cls"', b'"mean"'), good.replace(b"lovely", b"lonely"), b"{"):
        assert damaged != good
        file.write_bytes(damaged)
        with pytest.raises(ModelUnusable, match="foremind models pull a/pulled") as said:
            find_model("a/pulled", tmp_path)
        assert "\n" not in said.value.message
        assert find_model("all-MiniLM-L6-v2", tmp_path)
        prepare_model(describe_folder("a/pulled", random_folder, Prefixes()), tmp_path, print)
        assert find_model("a/pulled", tmp_path) == manifest


def test_a_failed_download_says_what_to_do(tmp_path: Path) -> None:
    """Every source that was tried, and the way without a network."""
    manifest = Manifest(
        name="nowhere",
        licence="none",
        dimension=8,
        max_tokens=8,
        pooling="mean",
        format="safetensors",
        files={"model.safetensors": "00"},
        sources=(
            PackageSource("foremind-no-such-package", "0.0.1", "00" * 32, "no_such/model"),
            FolderSource(str(tmp_path / "absent")),
        ),
    )
    with pytest.raises(ModelUnusable) as caught:
        prepare_model(manifest, tmp_path / "m", print)
    for said in ("foremind-no-such-package", "absent", "pip config list", "--from FOLDER"):
        assert said in caught.value.message


def test_a_folder_that_is_no_model_says_what_is_missing(tmp_path: Path) -> None:
    """Not a stack trace."""
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "hidden_size": 8}')
    with pytest.raises(ModelUnusable, match=r"expected onnx/model\.onnx"):
        describe_folder("a/b", tmp_path, Prefixes())


_TRANSFORMER = "sentence_transformers.models.Transformer"
_DENSE = "sentence_transformers.models.Dense"


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "max_tokens"),
        ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "lasttoken"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
            "mean_tokens and max_tokens",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "weightedmean"),
        ("modules.json", [{"type": _TRANSFORMER}, {"type": _DENSE}], "Dense"),
        ("modules.json", {"type": _DENSE}, "modules.json: expected a JSON array"),
    ],
)
def test_a_model_whose_vectors_would_be_wrong_is_refused_by_name(
    random_folder: Path, tmp_path: Path, file: str, content: object, named: str
) -> None:
    """Ways of pooling and layers that are not supported are not left out in silence."""
    folder = tmp_path / "model"
    shutil.copytree(random_folder, folder)
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(ModelUnusable, match=re.escape(named)):
        describe_folder("a/b", folder, Prefixes())


@pytest.mark.parametrize(
    ("content", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({}, "mean"),
    ],
)
def test_pooling_is_read_as_it_is_written(
    random_folder: Path, tmp_path: Path, content: object, pooling: str
) -> None:
    """In the old way, a flag for each, and in the new one, by name."""
    folder = tmp_path / "model"
    shutil.copytree(random_folder, folder)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(content))
    (folder / "modules.json").write_text(json.dumps([{"type": _TRANSFORMER}]))
    assert describe_folder("a/b", folder, Prefixes()).pooling == pooling


def test_a_check_that_fails_refuses_the_model(random_folder: Path, tmp_path: Path) -> None:
    """A manifest that promises another dimension is not believed."""
    honest = describe_folder("a/b", random_folder, Prefixes())
    with pytest.raises(ModelUnusable, match="gives vectors of 768 numbers"):
        prepare_model(msgspec.structs.replace(honest, dimension=384), tmp_path, print)


def _embedding(model: ConvertedEncoder, metrics: Metrics) -> EmbeddingService:
    clock = SystemClock()
    supervisor = Supervisor(clock, metrics)
    return EmbeddingService(
        LocalBackend(model.encoder()), model.manifest, 64, clock, metrics, supervisor
    )


async def test_enter_overtakes_what_waits(model: ConvertedEncoder) -> None:
    """On the real model: the last to come is the first to be served after the one under way."""
    metrics = Metrics()
    order: list[str] = []
    async with _embedding(model, metrics) as service:

        async def ask(name: str, priority: Priority) -> None:
            await service.embed_query(name, priority)
            order.append(name)

        waiting = [asyncio.create_task(ask(f"pause {n}", Priority.PAUSE)) for n in range(5)]
        await asyncio.sleep(0)
        await asyncio.gather(ask("enter", Priority.ENTER), *waiting)
    assert order[0] in ("enter", "pause 0")
    assert "enter" in order[:2]


async def test_a_superseded_text_is_never_embedded(model: ConvertedEncoder) -> None:
    """Cancelling drops it from the line and counts it."""
    metrics = Metrics()
    async with _embedding(model, metrics) as service:
        first = asyncio.create_task(service.embed_query("first", Priority.PAUSE))
        second = asyncio.create_task(service.embed_query("second", Priority.PAUSE))
        await asyncio.sleep(0)
        second.cancel()
        assert (await first).shape == (384,)
        with pytest.raises(asyncio.CancelledError):
            await second
    dropped = metrics.registry.get_sample_value("foremind_dropped_total", {"kind": "superseded"})
    embedded = metrics.registry.get_sample_value("foremind_stage_seconds_count", {"stage": "embed"})
    assert (dropped, embedded) == (1, 1)


async def test_enter_breaks_off_what_may_be_thrown_away(model: ConvertedEncoder) -> None:
    """A settled draft under way is broken off for a player who waits, and done again after."""
    metrics = Metrics()
    order: list[str] = []
    async with _embedding(model, metrics) as service:

        async def ask(text: str, priority: Priority) -> Vector:
            vector = await service.embed_query(text, priority)
            order.append(text[:4])
            return vector

        pasted = "long " * 200
        eager = asyncio.create_task(ask(pasted, Priority.EAGER))
        for _ in range(3):  # until it is under way
            await asyncio.sleep(0)
        await ask("quick", Priority.ENTER)
        vector = await eager
        assert order == ["quic", "long"]
        assert (vector == await service.embed_query(pasted, Priority.ENTER)).all()
    dropped = metrics.registry.get_sample_value("foremind_dropped_total", {"kind": "interrupted"})
    assert dropped == 1
