"""The learned classifiers: what is committed is what the corpus makes."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from foremind.domain.errors import InvalidFile
from foremind.retrieval import classifiers as classifiers_module
from foremind.retrieval.calibration.classifier_training import (
    held_out_accuracy,
    read_corpus,
    train,
)
from foremind.retrieval.classifiers import (
    ClassifierFile,
    classifiers_path,
    features_of,
    load_classifiers,
)
from foremind.retrieval.embedding.conversion import ConvertedEncoder
from foremind.retrieval.recall_gate import worth_searching


def test_the_committed_classifiers_are_those_of_the_committed_corpus(
    model: ConvertedEncoder,
) -> None:
    """At most one line in a hundred is judged otherwise: processors differ in the last digits."""
    corpus = read_corpus()
    assert len({example.text for example in corpus}) >= 1500
    vectors = model.encoder().encode([example.text for example in corpus])
    made = train(corpus, vectors, model.manifest.name)
    kept = msgspec.json.decode(
        classifiers_path(model.manifest.name).read_bytes(), type=ClassifierFile
    )
    features = np.array(
        [features_of(example.text, v) for example, v in zip(corpus, vectors, strict=True)]
    )
    for name in ("keep", "recall"):
        first, second = (
            features @ np.array(getattr(file, name).weights) + getattr(file, name).bias > 0
            for file in (made, kept)
        )
        assert (first == second).mean() >= 0.99
    held_out = held_out_accuracy(corpus, vectors, kept)
    assert held_out["keep"] >= 0.88
    assert held_out["recall"] >= 0.94


def test_small_talk_stays_outside_the_gate(model: ConvertedEncoder) -> None:
    """Questions pass by their form; what is only said to say something does not."""
    classifiers = load_classifiers(model.manifest)
    assert classifiers is not None
    passing = {"small_talk", "filler", "reaction", "platitude", "encouragement"}
    texts = [example.text for example in read_corpus() if example.category in passing]
    vectors = model.encoder().encode(texts)
    let_through = [
        worth_searching(text, classifiers.classify(text, vector).recall)
        for text, vector in zip(texts, vectors, strict=True)
    ]
    assert len(texts) > 500
    assert np.mean(let_through) <= 0.08


def test_classifiers_of_another_shape_are_refused(
    model: ConvertedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights mean nothing to another model; a model without any has none."""
    path = tmp_path / "classifiers.json"
    monkeypatch.setattr(classifiers_module, "classifiers_path", lambda _: path)
    assert load_classifiers(model.manifest) is None
    path.write_text('{"model": "x", "shape": [], "keep": {"weights": [], "bias": 0}}')
    with pytest.raises(InvalidFile, match="recall"):
        load_classifiers(model.manifest)
    file = msgspec.json.decode(
        b'{"model": "x", "shape": [], "keep": {"weights": [1], "bias": 0},'
        b'"recall": {"weights": [1], "bias": 0}}'
    )
    path.write_bytes(msgspec.json.encode(file))
    with pytest.raises(InvalidFile, match="393 weights"):
        load_classifiers(model.manifest)
