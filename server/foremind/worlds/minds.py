"""Minds: what characters of a world know. A mind perceives what it witnessed when somebody asks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from foremind.domain.actions import Offer
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage
from foremind.domain.memory import Recalled
from foremind.domain.policy import Policy, policy_for
from foremind.domain.relationship import Relationship, relationship_id_of
from foremind.domain.settings.setting_levels import effective_settings, setting_origins
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.domain.user import NO_NAME, UTC
from foremind.domain.world import NO_SCENE, Perceived, Scene, Surroundings, player_account
from foremind.llm.prompt.assembly import MAX_TURNS, AssembledPrompt
from foremind.llm.prompt.character import macro_values
from foremind.llm.prompt.kept_prompt import keep_prompt
from foremind.llm.prompt.layout import PastTurn, witnessed
from foremind.llm.prompt.quoted_lines import without_tags
from foremind.llm.prompt.sections import StandingLayers, memory_lines, section
from foremind.llm.prompt.token_counter import counter_for
from foremind.memory.ingest import MemoryIngester
from foremind.retrieval.embedding.service import Priority
from foremind.runtime.services import RuntimeServices
from foremind.storage.mind_store import PerceivedEvent
from foremind.storage.stores import Stores
from foremind.storage.world_events import World
from foremind.storage.world_store import MindPrompt
from foremind.typeahead.context_builder import ContextServices, RetrievalScope
from foremind.typeahead.context_cache import CacheKey
from foremind.typeahead.draft_lore import NO_HISTORY, has_lorebook, lore_for, mark_of
from foremind.typeahead.prefetch_policy import normalise
from foremind.typeahead.prefetcher import ContextAtEnter
from foremind.typeahead.prompt_builder import ConversationSnapshot, build_prompt
from foremind.worlds.narration import Names, narrate, spoken

#: Returns what was prepared for a text that a mind answers, None if nothing was.
Recall = Callable[["Mind", str], Awaitable[ContextAtEnter | None]]

_LINES = 4  # of what was witnessed that count as one memory of a conversation
_BATCH = 256  # events that are perceived in one transaction
_SUMMARY = 12  # memories that are in every prompt


@dataclass(frozen=True, slots=True)
class Mind:
    """A mind that has perceived what it witnessed, as of its relationship's versions.

    `companion` and `policy` have the settings in force; `now` is the time of the world, `around`
    where it is there, and `offer` what it can do; `settings` returns those in force, by name.
    `summary` are the most significant of its memories, where it has more than its history shows.
    """

    world: World
    relationship: Relationship
    companion: Companion
    policy: Policy
    history: Sequence[PastTurn]
    summary: Sequence[Recalled]
    now: datetime
    around: Surroundings
    offer: Offer | None
    settings: Callable[[], dict[str, dict[str, object]]]

    @property
    def is_private(self) -> bool:
        """Whether it is of one player alone, and knows nothing that others told it."""
        return not self.companion.has_one_mind


@dataclass(frozen=True, slots=True)
class Thought:
    """What a mind's model is given for a draft, and what was recalled for that."""

    mind: Mind
    recalled: ContextAtEnter
    assembled: AssembledPrompt

    @property
    def kept_prompt(self) -> MindPrompt | None:
        """What is stored of its prompt with what the mind says, None if that is too long."""
        model, relationship = self.mind.policy.chat_model, self.mind.relationship
        settings = self.mind.settings()
        made = keep_prompt(self.assembled.prompt, model, settings, relationship.removals)
        return None if made is None else MindPrompt(relationship.id, made)


def _policy_for(settings: CompanionSettings, server: Settings) -> Policy:
    """Return the policy of a mind: what it witnessed are many short lines, with the same names."""
    policy = policy_for(settings, server)
    limit = _LINES * policy.recall.limit
    return replace(policy, recall=replace(policy.recall, limit=limit, in_world=True))


class Minds:
    """Brings minds up to date, and assembles what their models are given."""

    def __init__(
        self,
        runtime: RuntimeServices,
        stores: Stores,
        context: ContextServices,
        ingester: MemoryIngester,
    ) -> None:
        self._runtime = runtime
        self._stores = stores
        self._context = context
        self._ingester = ingester
        self._names = Names({})  # as they were read last

    async def mind(
        self,
        world: World,
        slug: str,
        player: str | None,
        scene: str = "",
        answering: str | None = None,
        *,
        met: bool = True,
        scenes: Mapping[str, Scene] | None = None,
    ) -> Mind:
        """Return a mind that has perceived all that it witnessed by now.

        Args:
            player: whose mind it is, of a character that has one for each player.
            scene: where it is asked, if it is there.
            answering: the event that it answers. If nothing followed, its history ends with that,
                and it perceives it when it is asked the next time.
            met: whether the player must be in a scene of the world, or have been.
            scenes: those of the world as they are; None to read them.

        Raises:
            NotFound: there is no such companion.
            InvalidMessage: it has a mind for each player, and none is named that will do.
            StorageUnavailable, Overloaded: try again later.
        """
        base = await self._stores.companions.find(slug)
        if base.has_one_mind:
            player = None
        elif player is None:
            raise InvalidMessage(
                "player: expected the id of one, as this companion has a mind for each",
                param="player",
            )
        past, perceived = await self._begun(world, base, player, met=met)
        relationship_id = past[-1]
        heard = await self._perceive(relationship_id, perceived, past, answering)
        await self._remember(relationship_id)
        relationship = await self._stores.relationships.find_any(relationship_id)
        history = [
            witnessed(said.text, said.turn_id, "" if said.spoken else said.place, own=said.own)
            for said in await self._stores.minds.perceptions(relationship_id, MAX_TURNS)
        ]
        if heard is not None:
            history.append(await self._heard(heard))
        settings = effective_settings(base.settings, relationship.settings, self._runtime.settings)
        policy = _policy_for(settings, self._runtime.settings)
        now = world.clock.at(self._runtime.clock.now())
        summary = await self._summary(relationship_id, policy, history, now)
        scenes = await self._stores.worlds.scenes(world) if scenes is None else scenes
        there = _scene_of(scenes, slug, player, scene)
        allowed = [
            action
            for action in world.rules.actions
            if there.name and action.when.holds(slug, there.name, there.players)
        ]
        return Mind(
            world,
            relationship,
            replace(base, settings=settings),
            policy,
            history,
            summary,
            now,
            Surroundings(there.place, world.rules.calendar),
            Offer(allowed, policy.chat_model.tools) if world.rules.actions else None,
            partial(setting_origins, base.settings, relationship.settings, self._runtime.settings),
        )

    async def witnessed(self, mind: Mind, player: str | None, limit: int) -> list[PerceivedEvent]:
        """Return the last events that a mind witnessed, oldest first.

        Args:
            player: whose mind it is, of a character that has one for each player.
        """
        owner = player if mind.is_private else None
        past = await self._through_time(mind.world, mind.companion, owner, met=False)
        known = [relationship for relationship in past if relationship is not None]
        return await self._stores.minds.witnessed_last(known, limit)

    async def think(
        self, mind: Mind, draft: str, speaker: str, priority: Priority = Priority.REQUEST
    ) -> Thought:
        """Return what a mind's model is given for what somebody says to it, or for a draft of it.

        Args:
            speaker: the id of who says it; "" for a draft that nobody says.

        Raises:
            Overloaded: the embedding queue is full.
        """
        recalled = await self._recalled(mind, mind.history, draft, priority)
        message = draft
        if speaker:
            message = without_tags(spoken(speaker, draft, await self.names()))
        return _thought(mind, recalled, mind.history, message)

    async def react(self, mind: Mind, text: str, recall: Recall | None = None) -> Thought:
        """Return what a mind's model is given for the last thing that it perceived.

        Args:
            text: what is recalled for; that of what it reacts to.
            recall: returns what was prepared for the text, None if nothing was.

        Raises:
            Overloaded: the embedding queue is full.
        """
        *before, last = mind.history or [PastTurn("user", text)]
        recalled = None if recall is None else await recall(mind, text)
        if recalled is None:
            recalled = await self._recalled(mind, before, text, Priority.ENTER)
        return _thought(mind, recalled, before, last.content)

    async def _summary(
        self, mind: int, policy: Policy, history: Sequence[PastTurn], now: datetime
    ) -> Sequence[Recalled]:
        """Return what stays in mind of what the history may not show.

        They are whole lines, as what somebody claims is to stay what somebody claims.
        """
        chars = sum(len(turn.content) for turn in history)
        shows_all = len(history) < MAX_TURNS and chars <= policy.layers.working_tokens
        if shows_all or not policy.layers.on("summary"):
            return ()
        return await self._stores.minds.most_significant(
            mind, _SUMMARY, policy.recall.oldest_recalled(now), policy.recall.permanent_significance
        )

    async def _recalled(
        self, mind: Mind, before: Sequence[PastTurn], text: str, priority: Priority
    ) -> ContextAtEnter:
        prepared = await self._context.builder.prepare(
            normalise(text), lambda: self.scope(mind, before), priority
        )
        return ContextAtEnter(prepared, prepared.standing, "miss", prepared.lore)

    def scope(self, mind: Mind, before: Sequence[PastTurn]) -> RetrievalScope:
        """Return what a mind searches for what is said after some turns."""
        relationship, companion, policy = mind.relationship, mind.companion, mind.policy
        layers = self._context.layer_cache.get(relationship.id)
        return RetrievalScope(
            relationship.id,
            companion.id,
            # What it perceived says itself who said it.
            "",
            CacheKey(
                memory_version=relationship.memory_version,
                layers_version=-1 if layers is None else layers.version,
                companion_version=companion.version,
                model="",
                embedding=self._context.embedder.manifest.fingerprint,
                recall_policy=policy.recall,
                layer_policy=policy.layers,
                history=mark_of(before) if has_lorebook(companion) else NO_HISTORY,
            ),
            UTC,
            lore=partial(
                lore_for,
                self._context.lorebooks,
                companion,
                policy.layers,
                macro_values(companion, NO_NAME, mind.world.name),
                before,
            ),
            now=mind.now,
            around=mind.around,
        )

    async def _begun(
        self, world: World, companion: Companion, player: str | None, *, met: bool
    ) -> tuple[list[int], int]:
        """Return the relationships with which a mind may witness more, and what it perceived last.

        They are in the order of their timelines; the last one, which exists, is the mind's now.
        """
        minds = self._stores.minds
        past = await self._through_time(world, companion, player, met=met)
        known = [relationship for relationship in past if relationship is not None]
        seq = await minds.perceived_seq(known[-1])
        if seq is None:
            await self._begin(past)
            seq = await minds.perceived_seq(known[-1])
        seq = seq or 0
        return known if seq + 1 < world.begun else known[-1:], seq

    async def _through_time(
        self, world: World, companion: Companion, player: str | None, *, met: bool
    ) -> list[int | None]:
        """Return a mind's relationship in each timeline of its world's past, oldest first.

        None where its player was not there. The last is that of the timeline that is going on.
        """
        if player is None:
            accounts: list[int | None] = [*world.lineage]
        else:
            ids = [player_account(timeline, player) for timeline in world.lineage]
            known = await self._stores.worlds.accounts(ids)
            accounts = [known.get(account) for account in ids]
            if accounts[-1] is None:
                accounts[-1] = await self._stores.worlds.account(world, player, met=met)
            if accounts[-1] is None:
                raise InvalidMessage(
                    "player: expected the id of one who is in a scene of this world, or was",
                    param="player",
                )
        return [
            None if account is None else relationship_id_of(account, companion.id)
            for account in accounts
        ]

    async def _begin(self, past: Sequence[int | None]) -> None:
        """Let a mind begin with what it remembered in the past of its timeline."""
        minds, mind = self._stores.minds, past[-1]
        assert mind is not None
        existing = await minds.existing([known for known in past[:-1] if known is not None])
        for place in range(len(past) - 2, -1, -1):
            source = past[place]
            if source in existing:
                seq = await minds.perceived_seq(source) or 0
                await self._perceive(source, seq, past[: place + 1])
                await self._remember(source)
                await minds.begin_mind(mind, source)
                return
        await minds.begin_mind(mind, None)

    async def _heard(self, event: Perceived) -> PastTurn:
        """Return what a mind has witnessed and not perceived."""
        text = narrate(event, await self.names())
        own = event.spoken and event.how == "own"
        return witnessed(text, None, "" if event.spoken else event.place, own=own)

    async def _perceive(
        self,
        mind: int,
        after: int,
        witnesses: Sequence[int | None],
        answering: str | None = None,
    ) -> Perceived | None:
        """Let a mind perceive what it witnessed after an event, but not what it answers, if last.

        Return that, if so.

        One vector serves all who witnessed an event: it is made when the first perceives it.

        Args:
            witnesses: its relationship in each timeline of its past, oldest first.
        """
        minds, now = self._stores.minds, self._runtime.clock.now()
        past = [witness for witness in witnesses if witness is not None]
        names: Names | None = None
        while events := await minds.witnessed(past, after, _BATCH):
            are_all = len(events) < _BATCH
            heard = events.pop().event if are_all and events[-1].event.id == answering else None
            if events:
                names = names or await self.names()
                made = {
                    event.key: await self._context.embedder.embed_passage(event.event.text)
                    for event in events
                    if event.vector is None
                }
                if made:
                    await minds.store_vectors(past, made)
                vectors = [
                    made[event.key] if event.vector is None else event.vector for event in events
                ]
                await minds.perceive(mind, events, vectors, partial(narrate, names=names), now)
                after = events[-1].key.seq
            if are_all:
                return heard
        return None

    async def names(self) -> Names:
        """Return what players and minds are called in prompts."""
        minds = await self._stores.companions.names()
        if self._names.minds != minds:
            self._names = Names(minds)
        return self._names

    async def _remember(self, mind: int) -> None:
        """Make memories of what a mind has perceived, and wait for it."""
        if turns := await self._stores.minds.unfinished(mind):
            await self._ingester.ingest_turns(mind, turns, embedded=True)


def _scene_of(scenes: Mapping[str, Scene], slug: str, player: str | None, asked: str) -> Scene:
    """Return where a character is, or is with a player; where it is asked first."""
    there = [
        scene
        for scene in scenes.values()
        if slug in scene.minds and (player is None or player in scene.players)
    ]
    return min(there, key=lambda scene: scene.name != asked, default=NO_SCENE)


def _thought(
    mind: Mind, recalled: ContextAtEnter, history: Sequence[PastTurn], message: str
) -> Thought:
    count = counter_for(mind.policy.layers.tokenizer)
    lines = memory_lines(mind.summary, "", mind.now, calendar=mind.around.calendar)
    assembled = build_prompt(
        mind.companion,
        mind.policy.layers,
        ConversationSnapshot(NO_NAME, history, mind.now, around=mind.around, offer=mind.offer),
        StandingLayers({**recalled.standing.sections, "summary": section("summary", lines, count)}),
        recalled.context,
        message,
        recalled.lore,
    )
    return Thought(mind, recalled, assembled)
