"""Before Enter: debounce drafts, prefetch, build and cache contexts. Read-only."""
