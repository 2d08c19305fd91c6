"""Hostile bytes, followed into every branch: `make fuzz MINUTES=10`."""

from pathlib import Path

#: A folder of inputs for each target.
CORPUS = Path(__file__).parent / "corpus"
