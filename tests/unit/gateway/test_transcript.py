"""What a resent transcript means for the stored turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

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
    Transcript,
    decide,
    erases,
    key_of,
    read_transcript,
)


def stored(*texts: str, before: tuple[str, ...] = ()) -> list[StoredMessage]:
    """Return stored turns: `u:` before what the user said, `c:` the companion, `c~` if stopped."""
    mark = Transcript(said(*before), [""]).mark(len(before))
    return [
        StoredMessage(
            number,
            "user" if text.startswith("u") else "companion",
            text[2:],
            f"m{number}" if text.startswith("u") else None,
            whole=text[1] != "~",
            before=mark if text.startswith("u") else None,
        )
        for number, text in enumerate(texts, 1)
    ]


def said(*texts: str) -> list[EarlierTurn]:
    """Return a transcript, written in the same way."""
    return [
        EarlierTurn("user" if text.startswith("u") else "companion", text[2:]) for text in texts
    ]


def decision_on(turns: list[StoredMessage], *texts: str, named: bool) -> Decision:
    """Return what a transcript means for stored turns."""
    transcript = read_transcript(said(*texts))
    assert transcript is not None
    return decide(turns, transcript, named=named)


FOUR = ("u:Hi", "c:Hello", "u:Rain?", "c:No rain")
SIX = (*FOUR, *FOUR[:2])
HI, HELLO, RAIN, NO_RAIN, HI_AGAIN, HELLO_AGAIN = stored(*SIX)
NEW = NewConversation()


@pytest.mark.parametrize(
    ("turns", "transcript", "named", "unnamed"),
    [
        # Nothing is stored yet.
        ((), ("u:Hi",), NEW, NEW),
        # Said next; with a greeting that is not stored; with a beginning that was left out.
        (FOUR, (*FOUR, "u:Thanks"), Append(0), Append(0)),
        (FOUR, ("c:Welcome", *FOUR, "u:Thanks"), Append(1), Append(1)),
        (FOUR, (*FOUR[2:], "u:Thanks"), Append(0), Append(0)),
        # White space and composition are not compared.
        (
            ("u:Caf\u00e9 ", "c:A\n\nB"), ("u:Cafe\u0301", "c:A B", "u:Thanks"),
            Append(0), Append(0),
        ),
        # The last reply is left out: it is to be made anew.
        (FOUR, FOUR[:3], Regenerate(0, RAIN, NO_RAIN), Regenerate(0, RAIN, NO_RAIN)),
        (FOUR[:2], FOUR[:1], Regenerate(0, HI, HELLO), Regenerate(0, HI, HELLO)),
        # So it is after something unknown, if that is certain to be the same conversation.
        (FOUR, ("c:Welcome", *FOUR[:3]), Regenerate(1, RAIN, NO_RAIN), NEW),
        # It never came.
        (FOUR[:3], FOUR[:3], Regenerate(0, RAIN, None), Regenerate(0, RAIN, None)),
        # It is to be continued: where it is the stored one, and where it is not.
        (
            FOUR, FOUR,
            Regenerate(0, RAIN, NO_RAIN, extends=True), Regenerate(0, RAIN, NO_RAIN, extends=True),
        ),
        (FOUR, (*FOUR[:3], "c:Some"), Regenerate(0, RAIN, NO_RAIN), NEW),
        (FOUR[:2], (*FOUR[:3], "c:Some"), Append(0), Append(0)),
        # The last message has changed.
        (FOUR, (*FOUR[:2], "u:Snow?"), Replace(0, RAIN, NO_RAIN), NEW),
        (FOUR[:3], (*FOUR[:2], "u:Snow?"), Replace(0, RAIN, None), NEW),
        # The player chose or wrote another reply before saying more.
        (FOUR, (*FOUR[:3], "c:Some rain", "u:Thanks"), Append(0, 0, NO_RAIN, "m3"), NEW),
        # A message that was not answered is followed by another.
        (FOUR[:3], (*FOUR[:3], "u:Hello?"), Append(0, 1), Append(0, 1)),
        (("u:Hi",), ("u:Hi", "u:Hello?"), Append(0, 1), Append(0, 1)),
        ((*FOUR[:3], "u:Hello?"), (*FOUR[:3], "u:Hello?", "u:Well"), Append(0, 2), Append(0, 2)),
        # Two messages in a row, of which none is stored; afterwards they are one.
        (FOUR[:2], (*FOUR[:3], "u:Hello?"), Append(0), Append(0)),
        (
            (*FOUR[:2], "u:Rain?\n\nHello?", "c:No"), (*FOUR[:3], "u:Hello?", "c:No", "u:Oh"),
            Append(0), Append(0),
        ),
        # A reply that was stopped may be missing.
        ((*FOUR[:3], "c~No"), (*FOUR[:3], "u:Hello?"), Append(0, 1), Append(0, 1)),
        # The same words again are a new message, if what is before them says so.
        (FOUR[:2], (*FOUR[:2], "u:Hi"), Append(0), Append(0)),
        (
            SIX, (*FOUR, FOUR[0]),
            Regenerate(0, HI_AGAIN, HELLO_AGAIN), Regenerate(0, HI_AGAIN, HELLO_AGAIN),
        ),
        # An older part has changed, or nothing is known.
        (FOUR, ("u:Hey", *FOUR[1:], "u:Thanks"), NEW, NEW),
        (FOUR, (FOUR[0], "c:Ahoy", *FOUR[2:], "u:Thanks"), NEW, NEW),
        (FOUR, ("u:Rain?",), NEW, NEW),
        (FOUR, ("u:Something else",), NEW, NEW),
        # The first message has changed: it might as well be another conversation.
        (FOUR[:2], ("u:Hey",), NEW, NEW),
        # One reply that is the same is not enough.
        (FOUR, ("c:No rain", "u:Thanks"), NEW, NEW),
        # Not the same speaker.
        (FOUR[:2], ("c:Hi", "u:Hello", "u:Thanks"), NEW, NEW),
    ],
)  # fmt: skip
def test_a_transcript_is_read_by_its_end(
    turns: Sequence[str], transcript: Sequence[str], named: Decision, unnamed: Decision
) -> None:
    """As the comments above say, where the client names the conversation, and where it does not."""
    assert decision_on(stored(*turns), *transcript, named=True) == named
    assert decision_on(stored(*turns), *transcript, named=False) == unnamed


@pytest.mark.parametrize(
    ("messages", "prior", "last", "begun"),
    [
        (("u:Hi",), (), ["Hi"], ""),
        (("u:Hi", "c:", "u:You?", "u: "), (), ["Hi", "You?"], ""),
        (("u:Hi", "c:", "u:Hi"), (), ["Hi"], ""),
        (("u:Hi", "u:You?", "c:Yes", "u:Oh"), ("u:Hi\n\nYou?", "c:Yes"), ["Oh"], ""),
        (("u:Hi", "c:Hello", "c:there"), (), ["Hi"], "Hello\n\nthere"),
    ],
)
def test_messages_in_a_row_are_one_utterance(
    messages: Sequence[str], prior: Sequence[str], last: list[str], begun: str
) -> None:
    """Blank ones are none."""
    assert read_transcript(said(*messages)) == Transcript(said(*prior), last, begun)


@pytest.mark.parametrize("messages", [(), ("c:Hello",), ("u: ", "c:Hello"), ("u:",)])
def test_a_conversation_has_something_that_the_player_says(messages: Sequence[str]) -> None:
    """Else there is nothing to answer."""
    assert read_transcript(said(*messages)) is None


def test_a_stopped_reply_is_known_by_its_beginning() -> None:
    """The client may have shown less of it than was sent."""
    turns = stored("u:Hi", "c~Hello there")
    for named in (False, True):
        assert decision_on(turns, "u:Hi", "c:Hello", "u:Thanks", named=named) == Append(0)
        continued = Regenerate(0, turns[0], turns[1], extends=True)
        assert decision_on(turns, "u:Hi", "c:Hello", named=named) == continued
    shown = Append(0, 0, turns[-1], "m1")
    assert decision_on(turns, "u:Hi", "c:Ahoy", "u:Thanks", named=True) == shown


def test_the_first_message_of_a_session_is_known_by_what_was_before_it() -> None:
    """Else the same words at the end of another conversation would seem to be it."""
    turns = stored("u:Yes", "c:Good", before=("u:A", "c:B"))
    for named in (False, True):
        again = decision_on(turns, "u:A", "c:B", "u:Yes", named=named)
        assert again == Regenerate(2, turns[0], turns[1])
        assert decision_on(turns, "u:A", "c:B", "u:C", "c:D", "u:Yes", named=named) == NEW
        assert decision_on(turns, "u:C", "c:D", "u:Yes", named=named) == NEW
        assert decision_on(turns, "u:Yes", named=named) == NEW


@dataclass
class FrontEnd:
    """A chat front end, and the session that a server stores of what it sends."""

    transcript: list[EarlierTurn]
    named: bool
    turns: list[StoredMessage] = field(default_factory=list)
    erased: list[StoredMessage] = field(default_factory=list)
    made: int = 0

    def send(self) -> Decision:
        """Send the transcript; the server does what it means, and its reply is shown."""
        read = read_transcript(self.transcript)
        assert read is not None
        decision = decide(self.turns, read, named=self.named)
        before = list(self.turns)
        text, earlier = read.text(0), len(read.prior)
        match decision:
            case Append(former_reply=former, known=known):
                text, earlier = read.text(known), decision.earlier
                if former is not None:
                    shown = read.prior[-1].text
                    self.turns[-1] = replace(former, text=shown, whole=True)
            case Regenerate(message=message):
                self.turns = self.turns[: self.turns.index(message) + 1]
            case Replace(message=message, known=known):
                text, earlier = read.text(known), decision.earlier
                self.turns = self.turns[: self.turns.index(message)]
            case NewConversation():
                self.turns = []
        if erases(decision):
            self.erased += [turn for turn in before if turn not in self.turns]
        if not isinstance(decision, Regenerate):
            self._store("user", text, read.mark(earlier))
        self.made += 1
        reply = f"Reply {self.made}"
        self._store("companion", read.begun + reply)
        self.transcript.append(EarlierTurn("companion", reply))
        return decision

    def _store(self, speaker: str, text: str, before: str | None = None) -> None:
        number = len(self.turns) + 1 + 100 * self.made
        speakers = {"user": f"m{number}", "companion": None}
        self.turns.append(
            StoredMessage(number, speaker, text, speakers[speaker], before=before)  # type: ignore[arg-type]
        )


TEXTS = st.sampled_from(["Yes", "No", "Go on"])
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["say", "two", "swipe", "more", "edit", "choose", "rewrite"]), TEXTS),
    max_size=12,
)


@given(first=TEXTS, greeting=st.booleans(), named=st.booleans(), actions=ACTIONS)
def test_what_is_stored_is_what_stands(
    first: str, greeting: bool, named: bool, actions: list[tuple[str, str]]
) -> None:
    """Whatever is said, made anew, edited or chosen: each turn once, and no other.

    Where the client does not name the conversation, nothing but the last reply is erased.
    """
    earlier = [EarlierTurn("companion", "Welcome")] if greeting else []
    front_end = FrontEnd([*earlier, EarlierTurn("user", first)], named)
    assert front_end.send() == NEW
    for action, text in actions:
        transcript = front_end.transcript
        expected: type[Decision] = Append
        if action == "swipe":
            while transcript[-1].speaker == "companion":
                transcript.pop()
            expected = Regenerate
        elif action == "more":
            expected = Regenerate
        elif action == "edit" and transcript[-2].speaker == "user" and transcript[-2].text != text:
            transcript[-2:] = [EarlierTurn("user", text)]
            expected = Replace if named and len(front_end.turns) > 2 else NewConversation
        elif action == "choose" and transcript[-2].speaker == "user":  # an earlier version
            chosen = f"Chosen {front_end.made}"
            transcript[-1:] = [EarlierTurn("companion", chosen), EarlierTurn("user", text)]
            expected = Append if named else NewConversation
        elif action == "rewrite":
            transcript[0] = EarlierTurn(transcript[0].speaker, "Rewritten")
            transcript.append(EarlierTurn("user", text))
        else:
            transcript.append(EarlierTurn("user", text))
            if action == "two":
                transcript.append(EarlierTurn("user", f"{text}!"))
        decision = front_end.send()
        if "rewrite" not in (action for action, _ in actions) and action != "edit":
            assert isinstance(decision, expected), (action, decision)
        # A message that is sent twice in a row is one.
        shown = "".join(turn.text for turn, _ in groupby(front_end.transcript))
        kept = "".join(turn.text for turn in front_end.turns)
        assert key_of(shown).endswith(key_of(kept))
        if not named:
            assert all(turn.speaker == "companion" for turn in front_end.erased)
