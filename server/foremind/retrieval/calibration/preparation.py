"""Makes an embedding model ready on this machine, once, and says what is done. Blocking."""

from pathlib import Path

from foremind.retrieval.calibration.calibrate import calibrate, needs_calibration
from foremind.retrieval.embedding.conversion import ConvertedEncoder, Progress, prepare_model
from foremind.retrieval.embedding.manifest import Manifest


def ready_model(manifest: Manifest, models_dir: Path, say: Progress) -> ConvertedEncoder:
    """Return a model, having fetched, converted and calibrated it if that has not been done.

    Where the calibration cannot be stored, it is said, and the model has none.

    Raises:
        ModelUnusable: the model could not be fetched, or failed a check.
    """
    model = prepare_model(manifest, models_dir, say)
    if needs_calibration(manifest, models_dir):
        try:
            calibrate_aloud(model, say)
        except OSError as error:
            say(f"The calibration of {manifest.name} cannot be stored: {error}")
    return model


def calibrate_aloud(model: ConvertedEncoder, say: Progress) -> None:
    """Calibrate a model, and say what was measured.

    Raises:
        ModelUnusable: its vectors are not numbers.
        OSError: the calibration cannot be stored.
    """
    manifest = model.manifest
    say(f"Calibrating {manifest.name} on labelled texts, for up to a minute ...")
    made = calibrate(model)
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
