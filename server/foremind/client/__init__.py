"""Clients for the socket: single connections, and conversations that outlive them."""

from foremind.client.connection import Client, Closed, connect
from foremind.client.lasting import Conversation, Refused, Unreachable, Who
from foremind.client.tokens import TokenUnavailable

__all__ = [
    "Client",
    "Closed",
    "Conversation",
    "Refused",
    "TokenUnavailable",
    "Unreachable",
    "Who",
    "connect",
]
