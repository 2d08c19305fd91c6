"""WebSocket clients: single connections, and conversations that reconnect."""

from foremind_client.reconnecting import Conversation, Identity, Unreachable
from foremind_client.reports import Refused
from foremind_client.socket_client import Client, Closed, connect
from foremind_client.token_source import TokenUnavailable

__all__ = [
    "Client",
    "Closed",
    "Conversation",
    "Identity",
    "Refused",
    "TokenUnavailable",
    "Unreachable",
    "connect",
]
