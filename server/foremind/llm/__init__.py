"""Chat models: OpenAI-compatible servers and their slots, structured output, the offline model."""
