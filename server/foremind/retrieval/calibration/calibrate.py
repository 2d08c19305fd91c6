"""Calibrates a converted model, and says what a server knows of one. Blocking."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from foremind.domain.errors import ModelUnusable
from foremind.retrieval.calibration.classifier_training import (
    embed_corpus,
    held_out_accuracy,
    read_corpus,
    train,
)
from foremind.retrieval.calibration.cosines import Embed, MeasuredCosines, Vectors, measure_cosines
from foremind.retrieval.calibration.measured_file import (
    METHOD,
    Measured,
    read_measured,
    usable_classifiers,
    write_measured,
)
from foremind.retrieval.classifiers import TextClassifiers, load_classifiers
from foremind.retrieval.embedding.conversion import ConvertedEncoder
from foremind.retrieval.embedding.manifest import Manifest

# Shares of the held-out lines that classifiers must judge rightly to be better than rules.
_MIN_ACCURACY = {"keep": 0.80, "recall": 0.85}


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """A manifest with its calibration, if there is one, and the model's classifiers, if any."""

    manifest: Manifest
    classifiers: TextClassifiers | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured; `accuracy` is that of the classifiers on held-out lines, by name."""

    measured: Measured
    cosines: MeasuredCosines
    accuracy: dict[str, float]


def calibrated_model(manifest: Manifest, models_dir: Path) -> CalibratedModel:
    """Return what the manifest says, or else what was measured on this machine.

    Raises:
        InvalidFile: the shipped classifiers do not match the model.
        ModelUnusable: what was measured was changed.
    """
    shipped = load_classifiers(manifest)
    if manifest.calibration:
        return CalibratedModel(manifest, shipped)
    measured = read_measured(manifest, models_dir)
    if measured is None:
        return CalibratedModel(manifest, shipped)
    file = usable_classifiers(measured, manifest)
    own = None if file is None else TextClassifiers(file)
    calibrated = replace(
        manifest,
        calibration=measured.calibration,
        passage_calibration=measured.passage_calibration,
        repetition=measured.repetition,
        floor=measured.floor,
    )
    return CalibratedModel(calibrated, shipped or own)


def needs_calibration(manifest: Manifest, models_dir: Path) -> bool:
    """Return whether neither the manifest nor this machine has all of the model's calibration."""
    if manifest.calibration:
        return False
    measured = read_measured(manifest, models_dir)
    return measured is None or measured.classifiers != usable_classifiers(measured, manifest)


def calibrate(model: ConvertedEncoder) -> Calibration:
    """Measure a model's calibration, and store it unless its manifest has one."""
    manifest = model.manifest
    made = calibration_of(manifest, *embedding_with(model))
    if not manifest.calibration:
        write_measured(manifest, model.folder.parent, made.measured)
    return made


def embedding_with(model: ConvertedEncoder) -> tuple[Embed, Embed]:
    """Return what embeds queries and what embeds passages; one function if the prefixes agree."""
    encoder, manifest = model.encoder(), model.manifest

    def prefixed(prefix: str) -> Embed:
        return lambda texts: encoder.encode([prefix + text for text in texts])

    embed_passage = prefixed(manifest.passage_prefix)
    if manifest.same_for_query_and_passage:
        return embed_passage, embed_passage
    return prefixed(manifest.query_prefix), embed_passage


def calibration_of(manifest: Manifest, embed_query: Embed, embed_passage: Embed) -> Calibration:
    """Measure cosines and train classifiers with these vectors.

    Raises:
        ModelUnusable: a vector has something else than numbers, with which nothing can be measured.
    """
    same = embed_query is embed_passage
    embed_passage = _finite(embed_passage, manifest)
    embed_query = embed_passage if same else _finite(embed_query, manifest)
    cosines = measure_cosines(embed_query, embed_passage)
    corpus = read_corpus()
    vectors = embed_corpus(corpus, embed_query, embed_passage)
    classifiers = train(corpus, vectors, manifest.name)
    accuracy = held_out_accuracy(corpus, vectors, classifiers)
    useful = all(accuracy[name] >= least for name, least in _MIN_ACCURACY.items())
    measured = Measured(
        fingerprint=manifest.fingerprint,
        method=METHOD,
        calibration=cosines.of_query.cosines,
        passage_calibration=cosines.of_passages.cosines,
        repetition=cosines.repetition,
        floor=cosines.floor,
        classifiers=classifiers if useful else None,
    )
    return Calibration(measured, cosines, accuracy)


def _finite(embed: Embed, manifest: Manifest) -> Embed:
    """Return what embeds likewise, and refuses vectors that would make every comparison false."""

    def checked(texts: Sequence[str]) -> Vectors:
        vectors = embed(texts)
        if not np.isfinite(vectors).all():
            raise ModelUnusable(
                f"{manifest.name} cannot be calibrated: it gives vectors with something else than "
                "numbers. Pull another model, or this one from another source."
            )
        return vectors

    return checked
