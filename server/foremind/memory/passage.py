"""The vector of a memory: what was said, leaning towards who said it. Pure."""

import numpy as np
import numpy.typing as npt

# "What did Ana paint?" asks for Ana's words, yet people seldom say their own name. On the LoCoMo
# development conversations this lean lifts the vector's recall@10 from .37 to .55 and that of the
# whole score from .62 to .68; writing the name before the text and embedding that reaches .47 and
# .66, and could not reuse the vector that was made while the player typed.
SPEAKER_LEAN = 0.5


def lean_to_speaker(
    text: npt.NDArray[np.float32], speaker: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return the unit vector of a memory from those of its text and of its speaker's name.

    All are float32 [dimension].
    """
    leaning = text + np.float32(SPEAKER_LEAN) * speaker
    unit: npt.NDArray[np.float32] = leaning / np.linalg.norm(leaning)
    return unit
