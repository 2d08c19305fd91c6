"""The replies of one session: assembled, generated (speculatively if possible) and sent."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from msgspec import UNSET

from foremind.domain.errors import ForemindError
from foremind.domain.policy import LayerPolicy, Policy
from foremind.domain.turn import MadePrompt, SpeculativeWork, SpokenSentence, StoredTurn
from foremind.gateway.conversation import LiveConversation, SessionLore
from foremind.gateway.gated_reply import GatedReply, ReplyResult
from foremind.gateway.protocol.client_messages import MessageSend
from foremind.gateway.protocol.decoding import ErrorCause, error_body
from foremind.gateway.protocol.server_events import (
    BehaviourDone,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseSentence,
    ResponseTimings,
)
from foremind.gateway.session_client import SessionClient
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.gateway.speculation import SpeculativeGeneration
from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.prompt.kept_prompt import keep_prompt
from foremind.llm.prompt.layout import Message, PastTurn
from foremind.llm.prompt.sections import StandingLayers
from foremind.llm.prompt.token_counter import counter_for
from foremind.lore.activation import ActiveLore
from foremind.runtime.supervision import TaskSet
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter
from foremind.typeahead.prompt_builder import ConversationSnapshot, build_prompt

_log = structlog.get_logger("foremind.gateway")


class NextPrompt:
    """Tells a session's model server which prompt to expect; assembles one at a time.

    Args:
        server: returns the current model server, None without one.
        assemble: assembles the part of the next prompt that does not depend on its message; empty
            if that is not known.
    """

    def __init__(
        self,
        server: Callable[[], OpenAIChatModel | None],
        assemble: Callable[[], Awaitable[Sequence[Message]]],
    ) -> None:
        self._server = server
        self._assemble = assemble
        self._expected: Sequence[Message] = ()
        self._outdated = False
        self._drops = 0
        self._closed = False
        self._updating = False
        self._tasks = TaskSet()  # at most one

    def on_conversation(self) -> None:
        """The session was opened, or a reply ended."""
        server = self._server()
        if server is not None and server.options.self_hosted and not self._closed:
            self._outdated = True
            if not self._updating:
                self._updating = True
                self._tasks.begin(self._update(), "next-prompt")

    def on_layers(self) -> None:
        """A layer changed: update the prompt, unless the server has worked for others since."""
        server = self._server()
        if server is not None and self._expected and server.expects(self._expected):
            self.on_conversation()

    def drop(self) -> None:
        """Drop the prompt, also one being assembled: it may contain erased text."""
        server = self._server()
        if server is not None and self._expected and server.expects(self._expected):
            server.expect(())
        self._expected = ()
        self._outdated = False
        self._drops += 1

    async def close(self) -> None:
        """Drop the prompt, and wait until none is being assembled."""
        self._closed = True
        self.drop()
        await self._tasks.stop()

    async def _update(self) -> None:
        try:
            while self._outdated:
                self._outdated = False
                drops = self._drops
                messages = await self._assemble()
                server = self._server()
                if messages and server is not None and drops == self._drops:
                    self._expected = messages
                    server.expect(messages)
        except ForemindError as error:  # the next reply then waits for all of it
            _log.info("next_prompt.not_assembled", reason=error.code)
        finally:
            self._updating = False


_ANY_TEXT = "."
_ATTACHED_CHARS_PER_TOKEN = 1  # of the model's context, of which they take about a quarter
#: The message to a model whose reply is begun already.
_CONTINUE = "[Continue your last message exactly where it stops. Repeat nothing of it.]"


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A stored message and the reply being generated for it.

    `erasures` and `removals` are the numbers known before anything was gathered for the reply;
    `settings` returns those in force for it, by name.
    """

    message: MessageSend
    stored: StoredTurn
    reply: GatedReply
    policy: Policy
    arrived: float
    erasures: int
    removals: int
    settings: Callable[[], Mapping[str, object]]

    @property
    def kept_prompt(self) -> MadePrompt | None:
        """What is stored of its prompt, None if that is too long."""
        model = self.policy.chat_model
        return keep_prompt(self.reply.prompt, model, self.settings(), self.removals)


class ReplyGeneration:
    """Generates and sends the replies of one session, one at a time.

    Args:
        lore: returns what a draft activates of the companion's lorebook.
        client: is sent what happens.
    """

    def __init__(
        self,
        conversation: LiveConversation,
        services: SessionServices,
        session_policy: SessionPolicy,
        lore: SessionLore,
        client: SessionClient,
    ) -> None:
        self._conversation = conversation
        self._services = services
        self._session_policy = session_policy
        self._lore = lore
        self._client = client
        self._emit = client.emit
        #: The reply in progress.
        self.current: GatedReply | None = None
        relationship_id = conversation.opened.relationship_id
        self.speculation = SpeculativeGeneration(
            lambda: services.chat_models.speculation_for(
                session_policy.policy.chat_model, relationship_id
            ),
            self._assemble_speculatively,
            self._on_piece,
            services.runtime.clock,
            services.runtime.metrics,
        )
        self.next_prompt = NextPrompt(
            lambda: services.chat_models.model_server_for(
                session_policy.policy.chat_model, relationship_id
            ),
            lambda: self._assemble_beginning(session_policy.policy.layers),
        )

    def begin(
        self, message: MessageSend, at_enter: ContextAtEnter, policy: Policy
    ) -> tuple[GatedReply, SpeculativeWork]:
        """Begin the reply behind its gate, or claim the one generated speculatively."""
        chat_models, speculation = self._services.chat_models, self.speculation
        assembled = speculation.reuse_prefix(
            self._assemble(
                message.text,
                at_enter.standing,
                at_enter.context,
                policy.layers,
                at_enter.lore,
                message.id,
            )
        )
        assembled.prompt.messages()  # rendered and cached now, before `ready_ms` is measured
        reply, work = speculation.claim(assembled, chat_models.model_server_for(policy.chat_model))
        if reply is None:
            relationship_id = self._conversation.opened.relationship_id
            model = chat_models.chat_model_for(policy.chat_model, relationship_id)
            reply = GatedReply(model, assembled, self._on_piece, self._services.runtime.clock)
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

    def drop_speculation(self) -> None:
        """Drop all speculative work: it may contain erased text, or lack what was said."""
        self.speculation.reset()
        self.next_prompt.drop()

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
        self._emit(
            ResponseCreated(
                response_id=reply.id,
                message_id=turn.message.id,
                index=turn.stored.alternatives,
                count=turn.stored.alternatives + 1,
            )
        )
        erased = turn.erasures != self._conversation.erasures
        if superseded or erased:
            reply.cancel()
        if not erased:
            wanted = self._client.wants_sentences
            reply.open_gate(partial(self._on_sentence, reply.id) if wanted else None)
        result = await reply.result()
        self.current = None
        return result

    def finish(self, turn: RunningTurn, result: ReplyResult, used: Sequence[int]) -> None:
        """Report the end of a reply, and run the behaviours that follow it.

        Args:
            used: the ids of the memories that it uses.
        """
        clock, metrics = self._services.runtime.clock, self._services.runtime.metrics
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
                error=None if result.error is None else error_body(result.error, ErrorCause()),
                message_id=turn.message.id,
                index=turn.stored.alternatives,
                count=turn.stored.alternatives + 1,
                used=[str(memory_id) for memory_id in used],
                cut_off=result.cut_off,
                emotion=result.emotion or UNSET,
            )
        )
        self._log_end(turn, result, first_token_s, total_s)
        if result.status == "completed":
            self._run_post_reply_behaviours(turn, result)

    def _log_end(
        self, turn: RunningTurn, result: ReplyResult, first_token_s: float | None, total_s: float
    ) -> None:
        fields: dict[str, object] = {
            "status": result.status,
            "companion": self._session_policy.companion.slug,
            "model": turn.policy.chat_model.model if turn.policy.chat_model.url else "offline",
            "chars": len(result.text),
            "first_token_ms": None if first_token_s is None else round(first_token_s * 1000),
            "total_ms": round(total_s * 1000),
        }
        if result.looped:
            _log.warning("response.done", **fields, detail="The model went round in a loop.")
        elif result.error is None:
            _log.info("response.done", **fields)
        else:
            detail = result.error.for_operator
            _log.warning("response.done", **fields, code=result.error.code, detail=detail)

    def _run_post_reply_behaviours(self, turn: RunningTurn, result: ReplyResult) -> None:
        message = turn.message
        exchange = [PastTurn("user", message.text), PastTurn("companion", result.text)]
        # This session may have ended by the time the model has capacity, and then would not learn
        # of erasures: the check relies on the chat models, which always do.
        relationship_id = self._conversation.opened.relationship_id
        check = partial(self._services.chat_models.forgets.check, relationship_id, turn.erasures)

        def done(name: str, text: str) -> None:
            if turn.erasures == self._conversation.erasures:
                self._emit(BehaviourDone(message_id=message.id, name=name, text=text))

        for behaviour in turn.reply.behaviours:
            self._services.after_reply.behaviours.run(
                behaviour, relationship_id, turn.policy.chat_model, exchange, check, done
            )

    def _assemble_speculatively(self, draft: str, context: PreparedContext) -> AssembledPrompt:
        return self._assemble(
            draft, context.standing, context, context.cache_key.layer_policy, context.lore
        )

    async def _assemble_beginning(self, policy: LayerPolicy) -> Sequence[Message]:
        """Assemble what the next prompt begins with, whatever its message will be.

        Raises:
            ForemindError: the layers could not be read.
        """
        relationship_id = self._conversation.opened.relationship_id
        layers = await self._services.context.layer_cache.load(
            relationship_id,
            counter_for(policy.tokenizer),
            self._conversation.participants.language,
        )
        lore = await self._lore.for_next_draft()
        if not self._conversation.loaded:
            return ()
        assembled = self._assemble(_ANY_TEXT, layers.standing, None, policy, lore.active)
        return assembled.prompt.messages()[:-1]

    def _assemble(
        self,
        text: str,
        standing: StandingLayers,
        context: PreparedContext | None,
        policy: LayerPolicy,
        lore: ActiveLore,
        message_id: str | None = None,
    ) -> AssembledPrompt:
        """Assemble the prompt for a text, leaving out a stored message with its id."""
        conversation = self._conversation
        participants = conversation.participants
        history = conversation.history.without(message_id)
        if conversation.attached:
            chars = policy.context_tokens * _ATTACHED_CHARS_PER_TOKEN
            history = [*history, PastTurn("user", conversation.attached[:chars])]
        if conversation.begun:
            begun = PastTurn("companion", conversation.begun)
            history, text = [*history, PastTurn("user", text), begun], _CONTINUE
        snapshot = ConversationSnapshot(
            participants.user_name,
            history,
            self._services.runtime.clock.now().astimezone(participants.time_zone),
            conversation.state.value,
            str(conversation.opened.session_id),
            conversation.greeting,
            participants.language,
        )
        return build_prompt(
            self._session_policy.companion, policy, snapshot, standing, context, text, lore
        )

    def _on_sentence(self, response_id: str, sentence: SpokenSentence) -> None:
        self._emit(
            ResponseSentence(
                response_id=response_id,
                index=sentence.index,
                text=sentence.text,
                emotion=sentence.emotion or UNSET,
            )
        )

    def _on_piece(self, piece: str) -> None:
        if self.current is not None:
            self._emit(ResponseDelta(response_id=self.current.id, delta=piece))
