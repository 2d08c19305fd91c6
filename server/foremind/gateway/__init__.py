"""The door: socket, message vocabulary, sessions, identity, limits."""
