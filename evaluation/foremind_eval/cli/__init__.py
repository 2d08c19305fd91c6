"""Commands of `foremind` that this distribution adds: one module per command."""
