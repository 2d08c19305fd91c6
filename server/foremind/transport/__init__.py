"""Bytes in and out: connections, their limits and their turns, HTTP and WebSocket framing."""
