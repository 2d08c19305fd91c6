"""Clients for the socket: single connections, and conversations that outlive them."""

from foremind.client.connection import Client, Closed, connect
from foremind.client.lasting import Conversation, Refused, Who

__all__ = ["Client", "Closed", "Conversation", "Refused", "Who", "connect"]
