"""The reference library of a companion: documents in chunks, searched like memories."""
