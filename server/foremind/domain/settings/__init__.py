"""Settings: their groups, syntax, bounds and levels."""
