"""The turns of a session: what is asked waits, is answered once, and its reply is stored."""
