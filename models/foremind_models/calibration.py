"""Makes a model ready: fetched, converted and calibrated, once on a machine. Blocking."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from foremind_models.classifier_training import (
    ClassifierFile,
    TextFeatures,
    embed_corpus,
    held_out_accuracy,
    read_corpus,
    shipped_classifiers,
    train,
)
from foremind_models.conversion import ConvertedEncoder, Progress, prepare_model
from foremind_models.cosines import Embed, MeasuredCosines, Vectors, measure_cosines
from foremind_models.manifest import Manifest, ModelUnusable
from foremind_models.measured_file import (
    METHOD,
    Measured,
    read_measured,
    usable_classifiers,
    write_measured,
)

# Shares of the held-out lines that classifiers must judge rightly to be better than rules.
_MIN_ACCURACY = {"keep": 0.80, "recall": 0.85}


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """A manifest with its calibration, if there is one, and the model's classifiers, if any."""

    manifest: Manifest
    classifiers: ClassifierFile | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured; `accuracy` is that of the classifiers on held-out lines, by name."""

    measured: Measured
    cosines: MeasuredCosines
    accuracy: dict[str, float]


def ready_model(
    manifest: Manifest, models_dir: Path, features: TextFeatures, say: Progress
) -> ConvertedEncoder:
    """Return a model, having fetched, converted and calibrated it if that has not been done.

    Where the calibration cannot be stored, it is said, and the model has none.

    Raises:
        ModelUnusable: the model could not be fetched, or failed a check.
    """
    model = prepare_model(manifest, models_dir, say)
    if needs_calibration(manifest, models_dir, features):
        try:
            calibrate_aloud(model, features, say)
        except OSError as error:
            say(f"The calibration of {manifest.name} cannot be stored: {error}")
    return model


def calibrate_aloud(model: ConvertedEncoder, features: TextFeatures, say: Progress) -> None:
    """Calibrate a model, and say what was measured.

    Raises:
        ModelUnusable: its vectors are not numbers.
        OSError: the calibration cannot be stored.
    """
    manifest = model.manifest
    say(f"Calibrating {manifest.name} on labelled texts, for up to a minute ...")
    made = calibrate(model, features)
    cosines = made.cosines
    for published, threshold in cosines.of_query.cosines.items():
        say(
            f"  {published} of other models is {threshold:.3f} of this one, which finds "
            f"{cosines.of_query.found[published]:.0%} of the same and "
            f"{cosines.of_query.mistaken[published]:.1%} of the others; "
            f"{cosines.of_passages.cosines[published]:.3f} between stored texts."
        )
    say(f"  Texts may say the same from {cosines.repetition:.3f}; {cosines.floor:.3f} counts as 0.")
    judged = ", ".join(f"{share:.1%} ({name})" for name, share in made.accuracy.items())
    used = "used" if made.measured.classifiers is not None else "too few, so that rules decide"
    say(f"  Of held-out texts, classifiers judge {judged} correctly: {used}.")
    if manifest.calibration:
        say(f"{manifest.name} ships with a calibration, which is used instead.")


def needs_calibration(manifest: Manifest, models_dir: Path, features: TextFeatures) -> bool:
    """Return whether neither the manifest nor this machine has all of the model's calibration."""
    if manifest.calibration:
        return False
    measured = read_measured(manifest, models_dir)
    return measured is None or measured.classifiers != usable_classifiers(
        measured, manifest, features
    )


def calibrated_model(
    manifest: Manifest, models_dir: Path, features: TextFeatures
) -> CalibratedModel:
    """Return what the manifest says, or else what was measured on this machine.

    Raises:
        ModelUnusable: the shipped classifiers do not match the model, or what was measured was
            changed.
    """
    classifiers = shipped_classifiers(manifest, features)
    measured = None if manifest.calibration else read_measured(manifest, models_dir)
    if measured is not None:
        classifiers = classifiers or usable_classifiers(measured, manifest, features)
        manifest = replace(
            manifest,
            calibration=measured.calibration,
            passage_calibration=measured.passage_calibration,
            repetition=measured.repetition,
            floor=measured.floor,
        )
    return CalibratedModel(manifest, classifiers)


def calibrate(model: ConvertedEncoder, features: TextFeatures) -> Calibration:
    """Measure a model's calibration, and store it unless its manifest has one."""
    manifest = model.manifest
    made = calibration_of(manifest, *embedding_with(model), features)
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


def calibration_of(
    manifest: Manifest, embed_query: Embed, embed_passage: Embed, features: TextFeatures
) -> Calibration:
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
    classifiers = train(corpus, vectors, manifest.name, features)
    accuracy = held_out_accuracy(corpus, vectors, classifiers, features)
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
