"""Lorebooks of character cards: reading them, and which entries a draft activates. Pure."""
