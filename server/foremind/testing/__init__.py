"""Doubles for what a test cannot have: time that moves at will, and a language model."""
