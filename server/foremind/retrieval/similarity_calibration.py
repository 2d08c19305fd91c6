"""What thresholds published for other embedding models mean for this one. Pure."""

from itertools import pairwise

from foremind.retrieval.embedding.manifest import Manifest


def calibrated(manifest: Manifest, published: float) -> float:
    """Return this model's cosine for a published one, by the manifest's calibration.

    Between the measured points it is interpolated, beyond them taken as the nearest. A model
    without calibration is taken at the published numbers.
    """
    points = sorted((float(name), cosine) for name, cosine in manifest.calibration.items())
    if not points:
        return published
    for (low, low_cosine), (high, high_cosine) in pairwise(points):
        if low <= published <= high:
            share = (published - low) / (high - low)
            return low_cosine + share * (high_cosine - low_cosine)
    return points[0][1] if published < points[0][0] else points[-1][1]
