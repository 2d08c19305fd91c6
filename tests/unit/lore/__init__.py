"""Lorebooks: reading entries, finding keys, activating."""
