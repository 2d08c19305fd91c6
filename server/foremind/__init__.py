"""The server that has a companion's memories ready before the player presses Enter."""

import os

__version__ = "0.1.0"

# Read when NumPy is loaded. Vectors are compared on the event loop; a second thread halves a tenth
# of a millisecond on an idle machine, and on a busy one the first waits for it, for milliseconds.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
