"""Converts cosine thresholds published for other embedding models to this one's scale. Pure."""

from collections.abc import Mapping
from itertools import pairwise

from foremind.retrieval.embedding.manifest import Manifest

UNREACHED = 1.1  # above every cosine


def calibrated_cosine(manifest: Manifest, published: float) -> float:
    """Return the cosine of a query and a passage that corresponds to a published one.

    Linear interpolation between the calibration points of the manifest, clamped to the outermost.
    Without calibration it is one that no texts reach: where a model has all cosines above 0.7, the
    published ones would recall, merge and erase everything.
    """
    return _interpolated(manifest.calibration, published)


def calibrated_passage_cosine(manifest: Manifest, published: float) -> float:
    """Return the cosine of two passages that corresponds to a published one.

    As `calibrated_cosine`. A text that is embedded as a query is further from a passage than one
    that is embedded as a passage, where the model has a prefix for either.
    """
    return _interpolated(manifest.passage_calibration or manifest.calibration, published)


def _interpolated(calibration: Mapping[str, float], published: float) -> float:
    points = sorted((float(other), cosine) for other, cosine in calibration.items())
    if not points:
        return UNREACHED
    for (low, low_cosine), (high, high_cosine) in pairwise(points):
        if low <= published <= high:
            share = (published - low) / (high - low)
            return low_cosine + share * (high_cosine - low_cosine)
    return points[0][1] if published < points[0][0] else points[-1][1]
