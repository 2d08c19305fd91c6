"""Retrieval for a draft: query parsing, search, ranking, layers and documents."""
