"""Assembles prompts from all layers, within a token budget, with reusable prefixes."""
