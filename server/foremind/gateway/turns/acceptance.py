"""Reports that a message is stored."""

import structlog

from foremind.domain.turn import StoredTurn
from foremind.gateway.event_builders import duplicate_accepted, message_accepted
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turns.reply_start import StartedReply
from foremind.gateway.turns.requests import IncomingMessage
from foremind.gateway.turns.session_callbacks import SessionCallbacks

_log = structlog.get_logger("foremind.gateway")


class Acceptance:
    """Reports the stored messages of one session to its client, and to what comes after them."""

    def __init__(self, services: SessionServices, callbacks: SessionCallbacks) -> None:
        self._services = services
        self._callbacks = callbacks

    def accept(self, incoming: IncomingMessage, stored: StoredTurn, started: StartedReply) -> None:
        """Report that a message is stored and its context ready."""
        message, at_enter = incoming.message, started.at_enter
        services, context = self._services, at_enter.context
        ready_s = started.ready_at - incoming.arrived
        if context is not None and stored.kept:
            services.after_reply.ingester.cache_turn(stored.id, message.text, context.vector)
        services.runtime.metrics.contexts.labels(at_enter.outcome).inc()
        services.runtime.metrics.stage_seconds.labels("ready").observe(ready_s)
        self._callbacks.on_context(message.text, at_enter)
        self._callbacks.emit(
            message_accepted(message.id, stored, at_enter.outcome, ready_s, started.work)
        )
        _log.info(
            "message.accepted",
            turn_id=stored.id,
            chars=len(message.text),
            context=at_enter.outcome,
            ahead=started.work,
            memories=len(context.memories) if context else 0,
            ready_ms=round(ready_s * 1000, 3),
        )

    def acknowledge(self, message_id: str, arrived: float, turn_id: int, *, kept: bool) -> None:
        """Acknowledge a message that was or is being answered, here or elsewhere.

        Args:
            arrived: the monotonic time at which it arrived again.
        """
        elapsed_s = self._services.runtime.clock.monotonic() - arrived
        self._callbacks.emit(duplicate_accepted(message_id, turn_id, elapsed_s, kept=kept))
