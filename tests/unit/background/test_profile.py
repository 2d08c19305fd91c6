"""How statements change a profile."""

from datetime import UTC, datetime

from foremind.background.extractive_summary import Utterance
from foremind.background.profile_extraction import stated_in
from foremind.domain.companion_rules import (
    PROFILE_SLOTS,
    ProfileRules,
    ProfileSlot,
    profile_slots,
    slot_rank,
)
from foremind.domain.record import Details, MadeBy, NewRecord, Record
from foremind.llm.prompt.sections import profile_order
from foremind.memory.profile import (
    ProfileChange,
    ProfileEntry,
    entry_key,
    profile_change,
    removal_key,
    replaced_by_manual,
)

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def stored(
    number: int,
    title: str,
    content: str,
    made_by: MadeBy = "rules",
    slot: str = "",
    turn: int = 0,
    times: int = 0,
) -> Record:
    """A stored entry of the profile."""
    details = Details(slot=slot, rank=slot_rank(slot, PROFILE_SLOTS), turn=turn, times=times)
    return Record(
        number, "profile", "stated", title, content, (), details, None, made_by, None, NOW, NOW, 1
    )


def said(*texts: str, first: int = 1) -> list[ProfileEntry]:
    """The entries that rules find in Ana's utterances, one turn each."""
    return stated_in(
        Utterance(number, "Ana", True, text, 0.5) for number, text in enumerate(texts, first)
    )


def applied(present: list[Record], entries: list[ProfileEntry], *dismissed: str) -> ProfileChange:
    """The change that statements make to a profile."""
    return profile_change(present, entries, PROFILE_SLOTS, lambda key: key in dismissed)


def values(records: list[NewRecord]) -> list[tuple[str, str]]:
    """The titles and contents of records."""
    return [(record.title, record.content) for record in records]


def test_an_entry_is_a_value_of_a_slot_with_its_turns() -> None:
    """Single-value slots keep the newest value, others each value."""
    change = applied([], said("I live in Rome.", "I moved to Porto. I love rain.", "I love tea."))
    assert values(change.added) == [("home", "Porto"), ("likes", "rain"), ("likes", "tea")]
    assert [record.turns for record in change.added] == [(1, 2), (2,), (3,)]
    assert all(record.kind == "stated" and record.made_by == "rules" for record in change.added)


def test_a_newer_value_replaces_an_older_one_and_never_vice_versa() -> None:
    """Even when an older turn is read again."""
    home = stored(1, "home", "Rome", slot="home", turn=5)
    change = applied([home], said("I moved to Porto", first=7))
    assert [(before.id, record.content) for before, record in change.changed] == [(1, "Porto")]
    assert not applied([home], said("I live in Oslo", first=3)).changed


def test_manual_entries_are_kept_and_block_other_values() -> None:
    """Whatever their title and wording."""
    for title, content in (
        ("home", "Braga"), ("City", "Braga"), ("", "Lives in Braga"), ("", "Ana lives in Braga"),
        ("notes", "I live in Braga"),
    ):  # fmt: skip
        for maker in ("user", "developer"):
            manual = stored(1, title, content, maker)
            assert (
                applied([manual], said("I moved to Porto", "I don't live in Braga"))
                == ProfileChange()
            )


def test_manual_entries_replace_stated_ones() -> None:
    """In single-value slots, whatever the title; at once, or with the next statement."""
    home, likes = stored(1, "home", "Rome", slot="home"), stored(2, "likes", "rain", slot="likes")
    manual = stored(3, "", "Lives in Braga", "user")
    for title, content, replaced in (
        ("home", "Braga", [1]), ("", "Lives in Braga", [1]), ("likes", "jazz", []),
        ("", "Tall", []),
    ):  # fmt: skip
        written = NewRecord("profile", content, "user", title=title)
        assert replaced_by_manual([home, likes, manual], written, PROFILE_SLOTS) == replaced
    assert applied([home, likes, manual], said("I love tea")).removed == [1]


def test_likes_have_their_own_limit() -> None:
    """Those stated least often and longest ago are removed beyond it."""
    likes = [
        stored(
            number, "likes", f"thing{number}", slot="likes", turn=number, times=1 + (number == 1)
        )
        for number in range(1, 13)
    ]
    core = [stored(20, "name", "Ana", slot="name"), stored(21, "home", "Porto", slot="home")]
    change = applied([*likes, *core], said("I love rain", first=99))
    assert values(change.added) == [("likes", "rain")]
    assert change.removed == [2]
    ordered = sorted([*likes, *core], key=profile_order)
    assert [record.title for record in ordered[:2]] == ["name", "home"]


def test_likes_and_dislikes_exclude_each_other() -> None:
    """The newer statement wins."""
    change = applied([stored(1, "likes", "rain", slot="likes")], said("I don't like the rain"))
    assert [(before.id, values([record])) for before, record in change.changed] == [
        (1, [("dislikes", "rain")])
    ]
    assert (change.added, change.removed) == ([], [])


def test_retracted_values_are_removed() -> None:
    """Other values of the slot are kept."""
    present = [stored(1, "home", "Rome", slot="home"), stored(2, "pets", "dog Scout", slot="pets")]
    assert applied(present, said("I don't live in Rome any more")).removed == [1]
    assert applied(present, said("I don't live in Oslo")) == ProfileChange()
    assert applied(present, said("My dog has died")).removed == [2]


def test_a_name_that_was_got_wrong_is_corrected() -> None:
    """Whosever it is; what is known of nobody of that name is no fact."""
    present = [
        stored(1, "name", "Bob"),
        stored(2, "pets", "dog Rex"),
        stored(3, "home", "Rome"),
    ]
    entries = said("no, it's Rob, not Bob", "It's Max, not Rex!", "It's Paris, not Rome")
    change = applied(present, entries)
    assert [new.content for _, new in change.changed] == ["Rob", "dog Max"]
    assert (change.added, change.removed) == ([], [])
    assert said("it's tea, not coffee") == []


def test_a_pet_and_its_name_are_one_entry() -> None:
    """The name is kept when the pet is mentioned without it."""
    change = applied([], said("I have a dog.", "My dog is called Scout.", "I have a dog"))
    assert values(change.added) == [("pets", "dog Scout")]


def test_repeated_statements_are_counted_once_per_turn() -> None:
    """Reading a turn again changes nothing."""
    tea = stored(1, "likes", "tea", slot="likes", turn=3, times=1)
    ((record, details, turns),) = applied([tea], said("I love tea", first=4)).restated
    assert (record.id, details.times, details.turn, turns) == (1, 2, 4, (4,))
    ((_, details, _),) = applied([tea], said("I love tea", first=3)).restated
    assert (details.times, details.turn) == (1, 3)


def test_removed_entries_are_not_made_again() -> None:
    """Other values of the slot are."""
    home = stored(1, "home", "Porto", slot="home")
    assert removal_key(home) == entry_key("home", "porto")
    change = applied([], said("I live in Porto", "I love tea"), removal_key(home))
    assert values(change.added) == [("likes", "tea")]


def test_a_companion_adds_slots_or_has_only_its_own() -> None:
    """Rules fill no slot that the companion does not have."""
    boat = {"boat": ProfileSlot("what the user sails")}
    assert list(profile_slots(ProfileRules(slots=boat))) == [*PROFILE_SLOTS, "boat"]
    only = profile_slots(ProfileRules(slots=boat, only=True))
    assert list(only) == ["boat"]
    assert profile_change([], said("I live in Porto"), only, lambda _: False) == ProfileChange()
