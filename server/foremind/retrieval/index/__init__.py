"""The memory index in the process, with a cache of indexes by relationship."""
