"""Measures what an embedding model's cosines mean, and trains its classifiers."""
