"""The replies of one session: assembled, generated (speculatively if possible) and sent."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from foremind.domain.companion import Companion
from foremind.domain.policy import LayerPolicy, Policy
from foremind.domain.turn import StoredTurn
from foremind.gateway.chat_history import without_summarised
from foremind.gateway.conversation import Conversation
from foremind.gateway.gated_reply import GatedReply, ReplyResult
from foremind.gateway.protocol.decoding import DecodingProblem, error_body
from foremind.gateway.protocol.messages import (
    BehaviourDone,
    Event,
    MessageSend,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseTimings,
    SpeculativeWork,
)
from foremind.gateway.session_services import SessionServices
from foremind.gateway.speculation import SpeculativeGeneration
from foremind.llm.prompt.assembly import AssembledPrompt, assemble
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import StandingLayers, state_section
from foremind.llm.prompt.token_counter import counter_for
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A stored message and the reply being generated for it.

    `erasures` is the number of erasures known before anything was gathered for the reply.
    """

    message: MessageSend
    stored: StoredTurn
    reply: GatedReply
    policy: Policy
    arrived: float
    erasures: int


class ReplyGeneration:
    """Generates and sends the replies of one session, one at a time.

    Args:
        companion: returns the current companion.
        policy: returns the settings in force.
        emit: sends an event to the client.
    """

    def __init__(
        self,
        conversation: Conversation,
        services: SessionServices,
        companion: Callable[[], Companion],
        policy: Callable[[], Policy],
        emit: Callable[[Event], None],
    ) -> None:
        self._conversation = conversation
        self._services = services
        self._companion = companion
        self._emit = emit
        #: The reply in progress.
        self.current: GatedReply | None = None
        self.speculation = SpeculativeGeneration(
            lambda: services.voices.ahead_of(policy().voice),
            self._assemble_speculatively,
            self._on_piece,
            services.clock,
            services.metrics,
        )

    def begin(
        self, message: MessageSend, at_enter: ContextAtEnter, policy: Policy
    ) -> tuple[GatedReply, SpeculativeWork]:
        """Begin the reply behind its gate, or claim the one generated speculatively."""
        voices, speculation = self._services.voices, self.speculation
        assembled = speculation.reuse_prefix(
            self._assemble(
                message.text, at_enter.standing, at_enter.context, policy.layers, message.id
            )
        )
        assembled.prompt.messages()  # rendered and cached now, before `ready_ms` is measured
        reply, work = speculation.claim(assembled, voices.server_of(policy.voice))
        if reply is None:
            model = voices.voice_of(policy.voice)
            reply = GatedReply(model, assembled, self._on_piece, self._services.clock)
        self.current = reply
        return reply, work

    def cancel(self, response_id: str) -> bool:
        """Stop a reply; return False if it is not the one in progress."""
        if self.current is None or self.current.id != response_id:
            return False
        self.current.cancel()
        return True

    def stop(self) -> None:
        """Stop the reply in progress."""
        if self.current is not None:
            self.current.cancel()

    def discard(self, reply: GatedReply) -> None:
        """Stop a reply that nobody will receive, and release its prompt."""
        reply.cancel()
        self.current = None

    async def send(self, turn: RunningTurn, *, superseded: bool) -> ReplyResult:
        """Open the gate and wait for the end of the reply.

        A reply that may contain erased text is stopped with its gate closed.

        Args:
            superseded: whether a newer message is waiting, which stops the reply at once.
        """
        reply = turn.reply
        self._emit(ResponseCreated(response_id=reply.id, message_id=turn.message.id))
        erased = turn.erasures != self._conversation.erasures
        if superseded or erased:
            reply.cancel()
        if not erased:
            reply.open_gate()
        result = await reply.result()
        self.current = None
        return result

    def finish(self, turn: RunningTurn, result: ReplyResult) -> None:
        """Report the end of a reply, and run the behaviours that follow it."""
        clock, metrics = self._services.clock, self._services.metrics
        total_s = clock.monotonic() - turn.arrived
        first_token_s = (
            None if result.first_token_at is None else result.first_token_at - turn.arrived
        )
        metrics.responses.labels(result.status).inc()
        metrics.stage_seconds.labels("reply").observe(total_s)
        if first_token_s is not None:
            metrics.stage_seconds.labels("first_token").observe(first_token_s)
        self._emit(
            ResponseDone(
                response_id=turn.reply.id,
                status=result.status,
                text=result.text,
                timings=ResponseTimings(
                    first_token_ms=(
                        None if first_token_s is None else round(first_token_s * 1000, 3)
                    ),
                    total_ms=round(total_s * 1000, 3),
                ),
                error=None if result.error is None else error_body(result.error, DecodingProblem()),
            )
        )
        _log.info("response.done", status=result.status, chars=len(result.text))
        if result.status == "completed":
            self._run_post_reply_behaviours(turn, result)

    def _run_post_reply_behaviours(self, turn: RunningTurn, result: ReplyResult) -> None:
        message = turn.message
        exchange = [PastTurn("user", message.text), PastTurn("companion", result.text)]
        # This session may have ended by the time the model has capacity, and then would not learn
        # of erasures: the check relies on the chat models, which always do.
        relationship_id = self._conversation.opened.relationship_id
        check = partial(self._services.voices.forgets.check, relationship_id, turn.erasures)

        def done(name: str, text: str) -> None:
            if turn.erasures == self._conversation.erasures:
                self._emit(BehaviourDone(message_id=message.id, name=name, text=text))

        for behaviour in turn.reply.behaviours:
            self._services.afterwards.run(behaviour, turn.policy.voice, exchange, check, done)

    def _assemble_speculatively(self, draft: str, context: PreparedContext) -> AssembledPrompt:
        return self._assemble(draft, context.standing, context, context.validity.layers)

    def _assemble(
        self,
        text: str,
        standing: StandingLayers,
        context: PreparedContext | None,
        policy: LayerPolicy,
        message_id: str | None = None,
    ) -> AssembledPrompt:
        """Assemble the prompt for a text, leaving out a stored message with its id."""
        conversation = self._conversation
        participants = conversation.participants
        history = conversation.history.without(message_id)
        state = state_section(conversation.state.value, counter_for(policy.tokenizer))
        return assemble(
            self._companion(),
            policy,
            user_name=participants.user_name,
            standing={**standing.sections, "state": state},
            recalled={} if context is None else context.recalled,
            memories=() if context is None else context.memories,
            history=without_summarised(history, standing.summarised_turn_id),
            message=text,
            opening=not history,
            now=self._services.clock.now().astimezone(participants.time_zone),
        )

    def _on_piece(self, piece: str) -> None:
        if self.current is not None:
            self._emit(ResponseDelta(response_id=self.current.id, delta=piece))
