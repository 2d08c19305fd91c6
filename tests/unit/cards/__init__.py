"""Character cards: files, fields and macros."""
