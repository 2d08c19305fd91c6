"""What a model's cosines mean is measured where it is pulled, and a model without that is safe."""

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper

from foremind.app.core import core
from foremind.domain.settings.settings import Settings
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind_eval.language_recall import LanguageSet, measure_languages
from foremind_models import (
    ConvertedEncoder,
    ModelUnusable,
    Prefixes,
    calibrated_model,
    describe_folder,
    find_model,
    needs_calibration,
    prepare_model,
)
from foremind_models.calibration import calibration_of
from foremind_models.cosines import Embed, Vectors, measure_cosines


async def foremind(models: Path, *arguments: str) -> str:
    """Run the command line with these models; what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foremind", *arguments,
        env=os.environ | {"FOREMIND_MODELS_PATH": str(models), "COLUMNS": "120"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


def _export(model: ConvertedEncoder, folder: Path) -> None:
    """Write the default model as others publish theirs: ONNX to token vectors, without pooling."""
    (folder / "onnx").mkdir(parents=True)
    graph = onnx.load(model.folder / "model.fp32.onnx")
    pooling = next(at for at, node in enumerate(graph.graph.node) if node.output[0] == "kept")
    del graph.graph.node[pooling:]
    constants = [
        constant
        for constant in graph.graph.initializer
        if constant.name not in ("last_axis", "token_axis")
    ]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(constants)
    del graph.graph.output[:]
    vectors = helper.make_tensor_value_info(
        "last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", model.manifest.dimension]
    )
    graph.graph.output.append(vectors)
    onnx.save(graph, folder / "onnx" / "model.onnx")
    shutil.copy(model.folder / "tokenizer.json", folder / "tokenizer.json")
    (folder / "config.json").write_text(
        f'{{"hidden_size": {model.manifest.dimension}, "max_position_embeddings": 512}}'
    )


async def test_a_pulled_model_is_calibrated_like_the_shipped_one(
    model: ConvertedEncoder, settings: Settings, tmp_path: Path
) -> None:
    """Pulled under another name it is measured close to what ships, and is safe without that."""
    folder, models = tmp_path / "export", tmp_path / "models"
    _export(model, folder)
    said = await foremind(models, "models", "pull", "other", "--from", str(folder))
    assert "Calibrating other" in said
    manifest = find_model("other", models)
    assert manifest.calibration == {}
    calibrated = calibrated_model(manifest, models, TEXT_FEATURES)
    assert calibrated.classifiers is not None
    shipped = model.manifest
    for published, cosine in shipped.calibration.items():
        assert calibrated.manifest.calibration[published] == pytest.approx(cosine, abs=0.05)
    assert shipped.repetition is not None
    assert calibrated.manifest.repetition == pytest.approx(shipped.repetition, abs=0.03)
    assert calibrated.manifest.floor < 0.05
    assert calibrated.manifest.passage_calibration == calibrated.manifest.calibration
    assert calibrated.manifest.fingerprint == manifest.fingerprint
    assert "Calibrating" not in await foremind(
        models, "models", "pull", "other", "--from", str(folder)
    )
    # Of other prefixes it is not used, and changed by anybody it is refused.
    assert needs_calibration(replace(manifest, query_prefix="query: "), models, TEXT_FEATURES)
    file = models / "other.calibration.json"
    file.write_bytes(file.read_bytes().replace(b'"floor":', b'"floor":1'))
    with pytest.raises(ModelUnusable, match="foremind models calibrate other"):
        calibrated_model(manifest, models, TEXT_FEATURES)
    file.unlink()
    assert "Calibrating other" in await foremind(models, "models", "calibrate", "other")
    assert calibrated_model(manifest, models, TEXT_FEATURES).manifest.calibration
    file.unlink()
    other = msgspec.structs.replace(settings, embedding_model="other", models_path=models)
    said_at_starts: list[list[str]] = [[], []]
    for said_at_start in said_at_starts:
        async with core(other, say=said_at_start.append) as parts:
            assert parts.classifiers is not None
            assert parts.embedder.manifest == calibrated.manifest
    first, second = (any("Calibrating other" in line for line in said) for said in said_at_starts)
    assert (first, second) == (True, False)


async def test_a_model_that_cannot_be_calibrated_is_safe(
    model: ConvertedEncoder, settings: Settings, tmp_path: Path
) -> None:
    """What is stated is kept and found, small talk is not, and the operator is told."""
    folder, models = tmp_path / "export", tmp_path / "models"
    _export(model, folder)
    # So long that the name of a temporary file is too long, like any in a folder of others.
    name = "other" * 44
    prepare_model(describe_folder(name, folder, Prefixes()), models, print)
    told = LanguageSet(
        language="en",
        facts={"dog": "I have a dog called Biscuit.", "job": "I work as a nurse in Porto."},
        questions={"dog": "What is my dog called?", "job": "Where do I work?"},
        fillers=["haha", "thanks"],
        other_words=[],
    )
    lines: list[str] = []
    other = msgspec.structs.replace(settings, embedding_model=name, models_path=models)
    async with core(other, say=lines.append) as parts:
        assert parts.classifiers is None
        said = "\n".join(lines)
        assert "cannot be stored" in said
        assert "older notes not at all, and erasing spares replies" in said
        assert f"foremind models calibrate {name}" in said
        (report,) = await measure_languages(parts, [told], lambda _: None)
    assert (report.kept, report.fillers_kept, report.found_at_3) == (1.0, 0.0, 1.0)


def test_a_model_with_bunched_cosines_gets_thresholds_among_them(model: ConvertedEncoder) -> None:
    """As some multilingual models have: no two texts have a cosine below 0.7."""
    encoder = model.encoder()
    common = np.zeros(model.manifest.dimension, np.float32)
    common[0] = 1.0

    def embed(texts: Sequence[str]) -> Vectors:
        vectors = encoder.encode(texts)
        vectors[:, 0] = 0.0
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.float32(0.75**0.5) * common + np.float32(0.5) * vectors

    measured = measure_cosines(embed, embed)
    cosines = measured.of_query.cosines
    assert 0.8 < cosines["0.65"] <= cosines["0.72"] < 0.88
    assert measured.of_query.mistaken["0.65"] < 0.02
    assert measured.of_query.found["0.72"] > 0.6
    assert 0.9 < measured.repetition < 0.98
    assert 0.7 < measured.floor < 0.8


def test_what_is_stored_has_thresholds_of_its_own(model: ConvertedEncoder) -> None:
    """Two passages are closer than a query and a passage that say the same."""
    encoder = model.encoder()

    def prefixed(prefix: str) -> Embed:
        return lambda texts: encoder.encode([prefix + text for text in texts])

    measured = measure_cosines(prefixed("query: "), prefixed("passage: "))
    alike = measure_cosines(prefixed("passage: "), prefixed("passage: "))
    assert measured.of_passages == alike.of_passages == alike.of_query
    for published, cosine in measured.of_query.cosines.items():
        assert measured.of_passages.cosines[published] >= cosine + 0.03


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_vectors_without_numbers_are_refused(model: ConvertedEncoder, wrong: float) -> None:
    """Every comparison with them is false, and the threshold would be one that all texts reach."""

    def embed(texts: Sequence[str]) -> Vectors:
        vectors = np.full((len(texts), model.manifest.dimension), 0.05, np.float32)
        vectors[-1, 0] = wrong
        return vectors

    with pytest.raises(ModelUnusable, match="cannot be calibrated"):
        calibration_of(model.manifest, embed, embed, TEXT_FEATURES)
