"""One prompt from all layers, within a token budget, laid out so that a model can reuse it."""
