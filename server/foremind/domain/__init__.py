"""What everything else speaks of: turns, memories, records, companions, settings. No I/O."""
