"""The WebSocket side: connections, sessions, turns, and the events that they send."""
