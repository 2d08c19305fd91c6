"""Tests of fair-transport, which need nothing else of this repository."""
