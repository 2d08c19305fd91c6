"""A small asyncio client for the socket: what the terminal client and the tests use."""

from foremind.client.connection import Client, Closed, connect

__all__ = ["Client", "Closed", "connect"]
