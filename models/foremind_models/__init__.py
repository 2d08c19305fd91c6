"""Embedding models: described, fetched, converted without PyTorch, checked, calibrated and run.

`find_model` gives the `Manifest` of a name, and `ready_model` makes of it, once on a machine, a
`ConvertedEncoder`; `calibrated_model` says what is known of its vectors. The rest is for whoever
adds models or compares cosines. What cannot be used is a `ModelUnusable`, whose message says what
to do.
"""

from foremind_models.calibration import (
    CalibratedModel,
    calibrate_aloud,
    calibrated_model,
    needs_calibration,
    ready_model,
)
from foremind_models.classifier_training import ClassifierFile, TextFeatures
from foremind_models.conversion import (
    CHECK_TEXTS,
    ConvertedEncoder,
    is_prepared,
    prepare_model,
)
from foremind_models.encoder import CancelFlag, EncodingStopped, OnnxEncoder
from foremind_models.manifest import (
    UNREACHED,
    Manifest,
    ModelUnusable,
    calibrated_cosine,
    calibrated_passage_cosine,
)
from foremind_models.manifest_writer import Prefixes, describe_folder, describe_hub
from foremind_models.registry import find_model, known_models, shipped_models, shipped_name

__all__ = [
    "CHECK_TEXTS",
    "UNREACHED",
    "CalibratedModel",
    "CancelFlag",
    "ClassifierFile",
    "ConvertedEncoder",
    "EncodingStopped",
    "Manifest",
    "ModelUnusable",
    "OnnxEncoder",
    "Prefixes",
    "TextFeatures",
    "calibrate_aloud",
    "calibrated_cosine",
    "calibrated_model",
    "calibrated_passage_cosine",
    "describe_folder",
    "describe_hub",
    "find_model",
    "is_prepared",
    "known_models",
    "needs_calibration",
    "prepare_model",
    "ready_model",
    "shipped_models",
    "shipped_name",
]
