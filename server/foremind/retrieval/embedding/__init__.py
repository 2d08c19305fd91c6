"""Texts to vectors: an embedding model, here or on a server, behind one bounded queue."""
