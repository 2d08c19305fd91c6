"""The file of what was measured for an embedding model."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
from msgspec import structs

from foremind_models import (
    ClassifierFile,
    Manifest,
    TextFeatures,
    calibrated_model,
    needs_calibration,
)
from foremind_models.classifier_training import LinearClassifier
from foremind_models.measured_file import METHOD, Measured, write_measured

FEATURES = TextFeatures(("words",), lambda text: np.array([len(text.split())], np.float32))
MANIFEST = Manifest("my-model", "x", 2, 10, "mean", "onnx", {}, ())
_CLASSIFIER = LinearClassifier([0.5] * (MANIFEST.dimension + len(FEATURES.names)), 0.1)
MEASURED = Measured(
    fingerprint=MANIFEST.fingerprint,
    method=METHOD,
    calibration={"0.65": 0.8, "0.72": 0.84},
    passage_calibration={"0.65": 0.82, "0.72": 0.86},
    repetition=0.95,
    floor=0.7,
    classifiers=ClassifierFile(MANIFEST.name, list(FEATURES.names), _CLASSIFIER, _CLASSIFIER),
)


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    """As the model's calibration, and with its classifiers."""
    assert needs_calibration(MANIFEST, tmp_path, FEATURES)
    write_measured(MANIFEST, tmp_path, MEASURED)
    assert not needs_calibration(MANIFEST, tmp_path, FEATURES)
    found = calibrated_model(MANIFEST, tmp_path, FEATURES)
    assert found.classifiers is not None
    assert found.manifest == structs.replace(
        MANIFEST,
        calibration=MEASURED.calibration,
        passage_calibration=MEASURED.passage_calibration,
        repetition=0.95,
        floor=0.7,
    )


def test_several_processes_may_calibrate_at_once(tmp_path: Path) -> None:
    """The last one's result stays, whole, and nothing else."""
    with ThreadPoolExecutor(8) as threads:
        written = [threads.submit(write_measured, MANIFEST, tmp_path, MEASURED) for _ in range(200)]
        assert len({writing.result() for writing in written}) == 1
    assert not needs_calibration(MANIFEST, tmp_path, FEATURES)
    assert list(tmp_path.iterdir()) == [written[0].result()]


def test_cosines_stay_valid_when_the_text_features_change(tmp_path: Path) -> None:
    """The classifiers do not, and are trained again."""
    assert MEASURED.classifiers is not None
    earlier = structs.replace(MEASURED.classifiers, shape=["length"])
    write_measured(MANIFEST, tmp_path, structs.replace(MEASURED, classifiers=earlier))
    found = calibrated_model(MANIFEST, tmp_path, FEATURES)
    assert found.manifest.calibration == MEASURED.calibration
    assert found.classifiers is None
    assert needs_calibration(MANIFEST, tmp_path, FEATURES)


def test_classifiers_that_judged_too_little_are_not_trained_at_each_start(tmp_path: Path) -> None:
    """That there are none is a result."""
    write_measured(MANIFEST, tmp_path, structs.replace(MEASURED, classifiers=None))
    assert not needs_calibration(MANIFEST, tmp_path, FEATURES)
    assert calibrated_model(MANIFEST, tmp_path, FEATURES).classifiers is None


def test_what_was_measured_by_another_method_is_measured_again(tmp_path: Path) -> None:
    """An earlier one, whose file names none, or a later one, whose file has more in it."""
    earlier = {
        name: value
        for name, value in msgspec.to_builtins(MEASURED).items()
        if name not in ("method", "passage_calibration")
    }
    later = msgspec.to_builtins(MEASURED) | {"method": METHOD + 1, "more": 1}
    path = write_measured(MANIFEST, tmp_path, MEASURED)
    for measured in (earlier, later):
        content = msgspec.json.encode(measured)
        stored = {"sha256": hashlib.sha256(content).hexdigest(), "measured": msgspec.Raw(content)}
        path.write_bytes(msgspec.json.encode(stored))
        assert needs_calibration(MANIFEST, tmp_path, FEATURES)
        assert calibrated_model(MANIFEST, tmp_path, FEATURES).manifest == MANIFEST
