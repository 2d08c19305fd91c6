"""Converts cosine thresholds published for other embedding models to this one's scale. Pure."""

from itertools import pairwise

from foremind.retrieval.embedding.manifest import Manifest


def calibrated_cosine(manifest: Manifest, published: float) -> float:
    """Return the cosine of this model that corresponds to a published one.

    Linear interpolation between the calibration points of the manifest, clamped to the outermost.
    Without calibration, the published cosine is used unchanged.
    """
    points = sorted((float(other), cosine) for other, cosine in manifest.calibration.items())
    if not points:
        return published
    for (low, low_cosine), (high, high_cosine) in pairwise(points):
        if low <= published <= high:
            share = (published - low) / (high - low)
            return low_cosine + share * (high_cosine - low_cosine)
    return points[0][1] if published < points[0][0] else points[-1][1]
