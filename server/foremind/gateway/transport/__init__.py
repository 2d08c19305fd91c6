"""Byte transport: admission, fair scheduling, limits, and HTTP and WebSocket framing."""
