"""Coverage-guided fuzzing of everything that parses untrusted input: `make fuzz MINUTES=10`."""

from pathlib import Path

#: Contains a folder of inputs for each target.
CORPUS = Path(__file__).parent / "corpus"
