"""Bytes in and out: connections, their limits and fair scheduling, HTTP and WebSocket framing."""
