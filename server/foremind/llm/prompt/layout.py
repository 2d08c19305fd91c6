"""The prompt format: a prompt laid out as chat messages, ordered to suit prefix caches. Pure.

Stable parts come first (persona, identity, the standing sections), then the history, then what was
recalled for the draft and the message, so that a prefix cache can reuse as much as possible from
one turn to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal, TypedDict

import msgspec
from msgspec.structs import force_setattr

from foremind.domain.actions import Offer
from foremind.domain.memory import Recalled
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.turn import Speaker
from foremind.domain.user import NO_NAME
from foremind.domain.world import NOWHERE, Surroundings
from foremind.llm.acting import offered
from foremind.llm.prompt.quoted_lines import quoted, without_tags, witnessed_key
from foremind.llm.prompt.sections import Section
from foremind.lore.activation import NO_LORE, ActiveEntry, ActiveLore
from foremind.lore.book_fields import Role
from foremind.lore.key_matcher import KeyMatcher
from foremind.text.folding import visible
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import date_in, emotions_in, prompt_words
from foremind.text.sentences import sentence_keys_in


class Message(TypedDict):
    """A message of the chat completions API."""

    role: Literal["system", "user", "assistant"]
    content: str


#: The order of a prompt's sections: the most stable ones come first.
STANDING_ORDER: tuple[LayerName, ...] = ("profile", "hot", "scratchpad", "summary", "opening")
RECALLED_ORDER: tuple[LayerName, ...] = (
    "topics", "episodes", "scratchpad", "questions", "vault", "library", "memories", "state",
)  # fmt: skip
_TURN_SEPARATOR = "\n\n"  # between consecutive turns of the same speaker
# Placeholder for what preceded the companion's first turn: a greeting, or omitted turns.
_OMITTED: Message = {"role": "user", "content": "…"}


class PastTurn(msgspec.Struct, frozen=True, gc=False):
    """One turn of the conversation so far.

    `id` is that of the stored turn, once it is stored; `message_id` the client's.
    """

    speaker: Speaker
    content: str
    id: int | None = None
    message_id: str | None = None
    _says: frozenset[int] | None = None
    _keys: tuple[KeyMatcher, frozenset[int]] | None = None

    @property
    def says(self) -> frozenset[int]:
        """The keys of its sentences, as `text.sentences` computes them; cached."""
        if self._says is None:
            force_setattr(self, "_says", sentence_keys_in(self.content))
        return self._says or frozenset()

    def keys_in(self, matcher: KeyMatcher) -> frozenset[int]:
        """Return the keys of a lorebook that it contains; cached for the lorebook asked last."""
        if self._keys is None or self._keys[0] is not matcher:
            force_setattr(self, "_keys", (matcher, matcher.found_in(self.content)))
        return frozenset() if self._keys is None else self._keys[1]

    def is_scanned_for(self, matcher: KeyMatcher) -> bool:
        """Return whether its keys are cached."""
        return self._keys is not None and self._keys[0] is matcher


def witnessed(text: str, turn_id: int | None, place: str, *, own: bool) -> PastTurn:
    """Return a line of what a mind of a world witnessed at a place, or said itself.

    What looks like a tag of the prompt is none in it.
    """
    says = frozenset({witnessed_key(text, own=own)})
    line = without_tags(f"{text} ({place})" if place else text)
    return PastTurn("companion" if own else "user", line, turn_id, _says=says)


@dataclass(frozen=True)
class Prompt:
    """Everything a reply is generated from. Memories are sorted best first, history oldest first.

    `memories` are those in the section of that name. `standing` are sections that do not depend on
    the message, `recalled` those that do, and `instructions` those of the companion's behaviours
    that apply to it. `added` are sections that were recalled after the model had cached a prompt
    that ended with `recalled`, one tuple for each time. `lore` is what the message activates of the
    companion's lorebook; `closing` are its card's instructions that follow the history. `language`
    is that of Foremind's own words: the rules and today's date. The reply may be marked with
    `emotions`, and with the actions of an `offer`. `around` is where it is, in a world.
    """

    companion_name: str
    persona: str
    user_name: str
    memories: tuple[Recalled, ...]
    history: tuple[PastTurn, ...]
    message: str
    now: datetime
    standing: tuple[Section, ...] = ()
    recalled: tuple[Section, ...] = ()
    instructions: tuple[str, ...] = ()
    added: tuple[tuple[Section, ...], ...] = ()
    lore: ActiveLore = NO_LORE
    closing: str = ""
    language: str = ENGLISH
    emotions: tuple[str, ...] = ()
    around: Surroundings = NOWHERE
    offer: Offer | None = None

    @property
    def said(self) -> list[str]:
        """What a reply need not have from a memory: names, the history and the message."""
        history = [turn.content for turn in self.history]
        return [self.user_name, self.companion_name, *history, self.message]

    @property
    def records(self) -> set[int]:
        """The ids of the records in the prompt."""
        sections = [
            *self.standing,
            *self.recalled,
            *(section for part in self.added for section in part),
        ]
        return {record for section in sections for record in section.records}

    def messages(self) -> list[Message]:
        """Return the prompt as chat messages; cached."""
        return self._messages

    @cached_property
    def _messages(self) -> list[Message]:
        words = prompt_words(self.language)
        named = self.user_name != NO_NAME
        identity = f"{words.player.format(name=quoted(self.user_name))} " if named else ""
        standing = "".join(
            f"\n\n{_tagged(section.layer, section.lines)}" for section in self.standing
        )
        persona = "\n\n".join(
            [
                *(entry.text for entry in self.lore.at("before_char")),
                self.persona.strip(),
                *(entry.text for entry in self.lore.at("after_char")),
            ]
        )
        messages: list[Message] = [
            {"role": "system", "content": f"{persona}\n\n{identity}{words.rules}{standing}"}
        ]
        messages += alternating(self._history_with_lore())
        last = self._message_preamble() + self.message + self._lore_after_message()
        if messages[-1]["role"] == "user":  # an earlier message that was not answered
            last = f"{messages.pop()['content']}{_TURN_SEPARATOR}{last}"
        messages.append({"role": "user", "content": last})
        return [
            {"role": message["role"], "content": visible(message["content"])}
            for message in messages
        ]

    def _history_with_lore(self) -> Sequence[PastTurn]:
        """Return the history with the entries that stand at a depth of it, before the message.

        Many chat templates refuse a system message there, so such entries are a block in a message
        of the user.
        """
        by_place: dict[int, list[PastTurn]] = {}
        for entry in self.lore.at("depth"):
            depth = entry.placement.depth
            if depth > 0:
                place = max(0, len(self.history) + 1 - depth)
                speaker: Speaker = "companion" if _is_said(entry, "assistant") else "user"
                by_place.setdefault(place, []).append(PastTurn(speaker, _in_history(entry)))
        if not by_place:
            return self.history
        turns: list[PastTurn] = []
        for place in range(len(self.history) + 1):
            turns += by_place.get(place, ())
            turns += self.history[place : place + 1]
        return turns

    def _lore_after_message(self) -> str:
        """Return the entries of depth 0; a reply cannot be begun for the companion."""
        entries = [entry for entry in self.lore.at("depth") if entry.placement.depth == 0]
        return "".join(
            f"\n\n{entry.text if _is_said(entry, 'user') else _tagged('lore', [entry.text])}"
            for entry in entries
        )

    def _message_preamble(self) -> str:
        blocks = [_tagged(section.layer, section.lines) for section in self.recalled]
        where = f" ({self.around.place})" if self.around.place else ""
        blocks.append(date_in(self.language, self.now, self.around.calendar) + where)
        lines = [f"- {instruction.strip()}" for instruction in self.instructions]
        if self.closing:
            lines.insert(0, self.closing)
        if self.emotions:
            lines.append(f"- {emotions_in(self.language, self.emotions)}")
        lines += offered(self.offer)
        if lines:
            blocks.append(_tagged("instructions", lines))
        blocks += [_tagged(section.layer, section.lines) for part in self.added for section in part]
        lore = [entry.text for entry in self.lore.at("recalled")]
        if lore:  # last, as it changes most often while the draft is typed
            blocks.append(_tagged("lore", lore))
        return "\n".join(blocks) + "\n\n"


def _is_said(entry: ActiveEntry, role: Role) -> bool:
    return entry.placement.role == role


def _in_history(entry: ActiveEntry) -> str:
    return _tagged("lore", [entry.text]) if _is_said(entry, "system") else entry.text


def _tagged(tag: str, lines: Sequence[str]) -> str:
    return f"<{tag}>\n" + "\n".join(lines) + f"\n</{tag}>"


def alternating(turns: Sequence[PastTurn]) -> list[Message]:
    """Return turns as messages that alternate between user and assistant, the user's first.

    The chat templates of many models require this. Consecutive turns of one speaker are joined: the
    user speaks twice after a reply that failed, for example.
    """
    messages: list[Message] = []
    for turn in turns:
        role: Literal["user", "assistant"] = "user" if turn.speaker == "user" else "assistant"
        if not turn.content.strip():
            continue
        if messages and messages[-1]["role"] == role:
            joined = f"{messages[-1]['content']}{_TURN_SEPARATOR}{turn.content}"
            messages[-1] = {"role": role, "content": joined}
            continue
        if not messages and role == "assistant":
            messages.append(_OMITTED)
        messages.append({"role": role, "content": turn.content})
    return messages
