"""What a resent transcript means for the stored turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.turn_request import EarlierTurn
from foremind.gateway.transcript import (
    Append,
    Decision,
    NewConversation,
    Regenerate,
    Replace,
    StoredMessage,
    decide,
)


def stored(*texts: str, earlier: int = 0) -> list[StoredMessage]:
    """Return stored turns: `u:` before what the user said, `c:` the companion, `c~` if stopped."""
    return [
        StoredMessage(
            number,
            "user" if text.startswith("u") else "companion",
            text[2:],
            f"m{number}" if text.startswith("u") else None,
            whole=text[1] != "~",
            earlier=earlier if text.startswith("u") else None,
        )
        for number, text in enumerate(texts, 1)
    ]


def said(*texts: str) -> list[EarlierTurn]:
    """Return a transcript, written in the same way."""
    return [
        EarlierTurn("user" if text.startswith("u") else "companion", text[2:]) for text in texts
    ]


FOUR = ("u:Hi", "c:Hello", "u:Rain?", "c:No rain")
SIX = (*FOUR, *FOUR[:2])
HI, HELLO, RAIN, NO_RAIN, HI_AGAIN, HELLO_AGAIN = stored(*SIX)


@pytest.mark.parametrize(
    ("turns", "transcript", "decision"),
    [
        # Nothing is stored yet.
        ((), ("u:Hi",), NewConversation()),
        # Said next; with a greeting that is not stored; with a beginning that was left out.
        (FOUR, (*FOUR, "u:Thanks"), Append(0)),
        (FOUR, ("c:Welcome", *FOUR, "u:Thanks"), Append(1)),
        (FOUR, (*FOUR[2:], "u:Thanks"), Append(0)),
        # White space and composition are not compared.
        (("u:Caf\u00e9 ", "c:A\n\nB"), ("u:Cafe\u0301", "c:A B", "u:Thanks"), Append(0)),
        # The last reply is left out: it is to be made anew.
        (FOUR, FOUR[:3], Regenerate(0, RAIN, NO_RAIN)),
        (FOUR, ("c:Welcome", *FOUR[:3]), Regenerate(1, RAIN, NO_RAIN)),
        (FOUR[:2], FOUR[:1], Regenerate(0, HI, HELLO)),
        # It never came.
        (FOUR[:3], FOUR[:3], Regenerate(0, RAIN, None)),
        # The last message has changed.
        (FOUR, (*FOUR[:2], "u:Snow?"), Replace(0, RAIN, NO_RAIN)),
        (FOUR[:3], (*FOUR[:2], "u:Snow?"), Replace(0, RAIN, None)),
        # The player chose or wrote another reply before saying more.
        (FOUR, (*FOUR[:3], "c:Some rain", "u:Thanks"), Append(0, NO_RAIN, "m3")),
        # A message that was not answered is followed by another.
        (FOUR[:3], (*FOUR[:3], "u:Hello?"), Append(0)),
        # The same words again are a new message, if what is before them says so.
        (FOUR[:2], (*FOUR[:2], "u:Hi"), Append(0)),
        (SIX, (*FOUR, FOUR[0]), Regenerate(0, HI_AGAIN, HELLO_AGAIN)),
        # An older part has changed, or nothing is known.
        (FOUR, ("u:Hey", *FOUR[1:], "u:Thanks"), NewConversation()),
        (FOUR, (FOUR[0], "c:Ahoy", *FOUR[2:], "u:Thanks"), NewConversation()),
        (FOUR, ("u:Rain?",), NewConversation()),
        (FOUR, ("u:Something else",), NewConversation()),
        # The first message has changed: it might as well be another conversation.
        (FOUR[:2], ("u:Hey",), NewConversation()),
        # One reply that is the same is not enough.
        (FOUR, ("c:No rain", "u:Thanks"), NewConversation()),
        # Not the same speaker.
        (FOUR[:2], ("c:Hi", "u:Hello", "u:Thanks"), NewConversation()),
    ],
)  # fmt: skip
def test_a_transcript_is_read_by_its_end(
    turns: Sequence[str], transcript: Sequence[str], decision: Decision
) -> None:
    """As the comments above say."""
    assert decide(stored(*turns), said(*transcript)) == decision


def test_a_stopped_reply_is_known_by_its_beginning() -> None:
    """The client may have shown less of it than was sent."""
    turns = stored("u:Hi", "c~Hello there")
    assert decide(turns, said("u:Hi", "c:Hello", "u:Thanks")) == Append(0)
    assert decide(turns, said("u:Hi", "c:Ahoy", "u:Thanks")) == Append(0, turns[-1], "m1")


def test_the_first_message_of_a_session_is_known_by_what_was_before_it() -> None:
    """Else the same words at the end of another conversation would seem to be it."""
    turns = stored("u:Yes", "c:Good", earlier=2)
    assert decide(turns, said("u:A", "c:B", "u:Yes")) == Regenerate(2, *turns)
    assert decide(turns, said("u:A", "c:B", "u:C", "c:D", "u:Yes")) == NewConversation()
    assert decide(turns, said("u:Yes")) == NewConversation()


@dataclass
class FrontEnd:
    """A chat front end, and the session that a server stores of what it sends."""

    transcript: list[EarlierTurn]
    turns: list[StoredMessage] = field(default_factory=list)
    made: int = 0

    def send(self) -> Decision:
        """Send the transcript; the server does what it means, and its reply is shown."""
        decision = decide(self.turns, self.transcript)
        match decision:
            case Append(former_reply=former) if former is not None:
                shown = self.transcript[-2].text
                self.turns[-1] = replace(former, text=shown, whole=True)
            case Regenerate(message=message):
                self.turns = self.turns[: self.turns.index(message) + 1]
            case Replace(message=message):
                self.turns = self.turns[: self.turns.index(message)]
            case NewConversation():
                self.turns = []
        if not isinstance(decision, Regenerate):
            before = len(self.transcript) - 1 - len(self.turns)
            self._store("user", self.transcript[-1].text, before)
        self.made += 1
        reply = f"Reply {self.made}"
        self._store("companion", reply)
        self.transcript.append(EarlierTurn("companion", reply))
        return decision

    def _store(self, speaker: str, text: str, earlier: int | None = None) -> None:
        number = len(self.turns) + 1 + 100 * self.made
        speakers = {"user": f"m{number}", "companion": None}
        self.turns.append(
            StoredMessage(number, speaker, text, speakers[speaker], earlier=earlier)  # type: ignore[arg-type]
        )


TEXTS = st.sampled_from(["Yes", "No", "Go on"])
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["say", "swipe", "edit", "choose", "rewrite"]), TEXTS), max_size=12
)


@given(first=TEXTS, greeting=st.booleans(), actions=ACTIONS)
def test_what_is_stored_is_what_stands(
    first: str, greeting: bool, actions: list[tuple[str, str]]
) -> None:
    """Whatever is said, made anew, edited or chosen: each turn once, and no other."""
    earlier = [EarlierTurn("companion", "Welcome")] if greeting else []
    front_end = FrontEnd([*earlier, EarlierTurn("user", first)])
    assert front_end.send() == NewConversation()
    for action, text in actions:
        transcript = front_end.transcript
        expected: type[Decision] = Append
        if action == "swipe":
            transcript.pop()
            expected = Regenerate
        elif action == "edit" and transcript[-2].text != text:
            transcript[-2:] = [EarlierTurn("user", text)]
            expected = Replace if len(front_end.turns) > 2 else NewConversation
        elif action == "choose":  # an earlier version of the last reply
            transcript[-1:] = [EarlierTurn("companion", "Chosen"), EarlierTurn("user", text)]
        elif action == "rewrite":
            transcript[0] = EarlierTurn(transcript[0].speaker, "Rewritten")
            transcript.append(EarlierTurn("user", text))
        else:
            transcript.append(EarlierTurn("user", text))
        decision = front_end.send()
        if action != "rewrite":
            assert isinstance(decision, expected), (action, decision)
        shown = [(turn.speaker, turn.text) for turn in front_end.transcript]
        kept = [(turn.speaker, turn.text) for turn in front_end.turns]
        assert shown[len(shown) - len(kept) :] == kept
