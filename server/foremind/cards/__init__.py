"""Character cards: their files, the companions made of them, and the macros in their texts."""
