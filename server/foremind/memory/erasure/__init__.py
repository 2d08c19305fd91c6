"""Erasure: what is meant, what goes with it, in which steps, and what is reported of it."""
