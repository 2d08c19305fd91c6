"""The door: socket, message vocabulary, sessions, limits."""
