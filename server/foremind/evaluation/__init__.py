"""How well it remembers, and how fast: evidence recall and benchmarks."""
