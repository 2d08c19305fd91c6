"""The domain model: turns, memories, records, companions, settings, errors. No I/O."""
