"""How much is remembered, and how fast: evidence recall and benchmarks."""
