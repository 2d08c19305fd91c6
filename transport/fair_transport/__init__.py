"""HTTP and WebSocket for ASGI applications, in which no connection can delay the others.

`listening` serves an application, with `Limits` and `Hooks`. What its requests and sockets find in
`scope["state"]["connection"]` is their `Channel`: an application calls its `mark_identified` once
it knows who is there.
"""

from fair_transport.channel import Channel
from fair_transport.fair_scheduling import Precedence
from fair_transport.listener import TooFewDescriptors, bind, listening
from fair_transport.options import BodyRefused, Hooks, Limits, Refusal
from fair_transport.rate_limits import TokenBucket, ViolationBudget

__all__ = [
    "BodyRefused",
    "Channel",
    "Hooks",
    "Limits",
    "Precedence",
    "Refusal",
    "TokenBucket",
    "TooFewDescriptors",
    "ViolationBudget",
    "bind",
    "listening",
]
