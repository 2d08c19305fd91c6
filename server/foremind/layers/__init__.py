"""Beyond single memories: what stands in every prompt, and what a draft brings back. Reads only."""
