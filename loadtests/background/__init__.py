"""The cost of background work to replies, on a model server with one slot."""
