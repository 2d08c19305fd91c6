"""Words back: prompt layout, any OpenAI-compatible server, the offline voice."""
