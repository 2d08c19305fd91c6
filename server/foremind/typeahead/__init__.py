"""Before Enter: debounce, prefetch, build a context, keep it while it is valid. Writes nothing."""
