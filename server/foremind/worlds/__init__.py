"""Worlds: minds that share a place, and know what they witnessed."""
