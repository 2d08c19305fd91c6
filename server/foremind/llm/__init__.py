"""The language model: any OpenAI-compatible server, its slots, and the model for offline use."""
