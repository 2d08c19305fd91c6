"""Process infrastructure: supervised tasks, logs, metrics, garbage collection, packaged files."""
