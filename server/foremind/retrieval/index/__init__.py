"""Memories in the process: terms, vectors, and the cache that holds them per relationship."""
