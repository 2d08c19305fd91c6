"""The learned classifiers: what is committed is what the corpus makes."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from foremind.retrieval.classifiers import (
    TEXT_FEATURES,
    TextClassifiers,
    features_of,
    worth_searching,
)
from foremind_models import (
    ClassifierFile,
    ConvertedEncoder,
    ModelUnusable,
    classifier_training,
)
from foremind_models.calibration import calibrate
from foremind_models.classifier_training import (
    CATEGORIES,
    CorpusVectors,
    held_out_accuracy,
    read_corpus,
    shipped_classifiers,
    shipped_path,
    train,
)


def test_the_committed_classifiers_are_those_of_the_committed_corpus(
    model: ConvertedEncoder,
) -> None:
    """At most one line in a hundred is judged otherwise: processors differ in the last digits."""
    corpus = read_corpus()
    assert len({example.text for example in corpus}) >= 1500
    vectors = model.encoder().encode([example.text for example in corpus])
    made = train(corpus, CorpusVectors(vectors, vectors), model.manifest.name, TEXT_FEATURES)
    kept = msgspec.json.decode(shipped_path(model.manifest.name).read_bytes(), type=ClassifierFile)
    features = np.array(
        [features_of(example.text, v) for example, v in zip(corpus, vectors, strict=True)]
    )
    for name in ("keep", "recall"):
        first, second = (
            features @ np.array(getattr(file, name).weights) + getattr(file, name).bias > 0
            for file in (made, kept)
        )
        assert (first == second).mean() >= 0.99
    held_out = held_out_accuracy(corpus, CorpusVectors(vectors, vectors), kept, TEXT_FEATURES)
    assert held_out["keep"] >= 0.88
    assert held_out["recall"] >= 0.94


def test_small_talk_stays_outside_the_gate(model: ConvertedEncoder) -> None:
    """Questions pass by their form; what is only said to say something does not."""
    file = shipped_classifiers(model.manifest, TEXT_FEATURES)
    assert file is not None
    classifiers = TextClassifiers(file)
    passing = {"small_talk", "filler", "reaction", "platitude", "encouragement"}
    texts = [example.text for example in read_corpus() if example.category in passing]
    vectors = model.encoder().encode(texts)
    let_through = [
        worth_searching(text, classifiers.classify(text, vector).recall)
        for text, vector in zip(texts, vectors, strict=True)
    ]
    assert len(texts) > 500
    assert np.mean(let_through) <= 0.08


def test_each_classifier_is_trained_on_the_vectors_it_is_used_with(
    model: ConvertedEncoder,
) -> None:
    """Where queries have another prefix than passages: the recall gate judges queries."""
    manifest = replace(model.manifest, query_prefix="query: ", passage_prefix="passage: ")
    made = calibrate(ConvertedEncoder(manifest, model.folder), TEXT_FEATURES)
    assert made.measured.classifiers is not None
    classifiers, encoder = TextClassifiers(made.measured.classifiers), model.encoder()
    held_out = [line for line in read_corpus() if line.held_out]
    used_with = {"keep": manifest.passage_prefix, "recall": manifest.query_prefix}
    for name, prefix in used_with.items():
        vectors = encoder.encode([prefix + line.text for line in held_out])
        judged = [
            getattr(classifiers.classify(line.text, vector), name) > 0
            for line, vector in zip(held_out, vectors, strict=True)
        ]
        wanted = [getattr(CATEGORIES[line.category], name) for line in held_out]
        accuracy = np.mean(np.equal(judged, wanted))
        assert accuracy == pytest.approx(made.accuracy[name], abs=0.005)
        assert accuracy >= 0.85


def test_classifiers_of_another_shape_are_refused(
    model: ConvertedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights mean nothing to another model; a model without any has none."""
    path = tmp_path / "classifiers.json"
    monkeypatch.setattr(classifier_training, "shipped_path", lambda _: path)
    assert shipped_classifiers(model.manifest, TEXT_FEATURES) is None
    path.write_text('{"model": "x", "shape": [], "keep": {"weights": [], "bias": 0}}')
    with pytest.raises(ModelUnusable, match="recall"):
        shipped_classifiers(model.manifest, TEXT_FEATURES)
    file = msgspec.json.decode(
        b'{"model": "x", "shape": [], "keep": {"weights": [1], "bias": 0},'
        b'"recall": {"weights": [1], "bias": 0}}'
    )
    path.write_bytes(msgspec.json.encode(file))
    with pytest.raises(ModelUnusable, match="393 weights"):
        shipped_classifiers(model.manifest, TEXT_FEATURES)
