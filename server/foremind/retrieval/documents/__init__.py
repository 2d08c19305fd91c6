"""The reference library of a companion: documents in chunks, searched for each draft."""
