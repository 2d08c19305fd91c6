"""What becomes of a profile when something is stated."""

from datetime import UTC, datetime

from foremind.background.extractive_summary import Utterance
from foremind.background.profile import (
    ProfileChange,
    ProfileEntry,
    giving_way,
    key_of,
    news_of,
    removal_key,
    stated_in,
)
from foremind.domain.companion import PROFILE_SLOTS, ProfileRules, ProfileSlot, rank_of, slots_of
from foremind.domain.record import Details, MadeBy, NewRecord, Record
from foremind.llm.prompt.sections import profile_order

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def kept(
    number: int,
    title: str,
    content: str,
    made_by: MadeBy = "rules",
    slot: str = "",
    turn: int = 0,
    times: int = 0,
) -> Record:
    """An entry of the profile."""
    details = Details(slot=slot, rank=rank_of(slot, PROFILE_SLOTS), turn=turn, times=times)
    return Record(
        number, "profile", "stated", title, content, (), details, None, made_by, None, NOW, NOW, 1
    )


def said(*texts: str, first: int = 1) -> list[ProfileEntry]:
    """What rules read of what Ana says, a turn after the other."""
    return stated_in(
        Utterance(number, "Ana", True, text, 0.5) for number, text in enumerate(texts, first)
    )


def taken_in(present: list[Record], entries: list[ProfileEntry], *dismissed: str) -> ProfileChange:
    """What is to be written."""
    return news_of(present, entries, PROFILE_SLOTS, lambda key: key in dismissed)


def values(records: list[NewRecord]) -> list[tuple[str, str]]:
    """Titles and contents."""
    return [(record.title, record.content) for record in records]


def test_an_entry_is_a_value_of_a_slot_with_the_turn_it_was_made_of() -> None:
    """The newest of a slot that has one value, each of one that has many."""
    news = taken_in([], said("I live in Rome.", "I moved to Porto. I love rain.", "I love tea."))
    assert values(news.added) == [("home", "Porto"), ("likes", "rain"), ("likes", "tea")]
    assert [each.turns for each in news.added] == [(1, 2), (2,), (3,)]
    assert all(each.kind == "stated" and each.made_by == "rules" for each in news.added)


def test_a_newer_value_takes_the_place_of_the_older_and_not_the_other_way_round() -> None:
    """Also where an older turn is read again."""
    home = kept(1, "home", "Rome", slot="home", turn=5)
    news = taken_in([home], said("I moved to Porto", first=7))
    assert [(before.id, record.content) for before, record in news.changed] == [(1, "Porto")]
    assert not taken_in([home], said("I live in Oslo", first=3)).changed


def test_what_somebody_wrote_by_hand_stays_and_no_second_value_stands_beside_it() -> None:
    """Whatever it is called, and in whatever words it is written."""
    for title, content in (
        ("home", "Braga"), ("City", "Braga"), ("", "Lives in Braga"), ("", "Ana lives in Braga"),
        ("notes", "I live in Braga"),
    ):  # fmt: skip
        for maker in ("user", "developer"):
            mine = kept(1, title, content, maker)
            assert (
                taken_in([mine], said("I moved to Porto", "I don't live in Braga"))
                == ProfileChange()
            )


def test_what_was_stated_gives_way_to_what_is_written_by_hand() -> None:
    """In a slot that has one value, whatever its title; at once, or when something is stated."""
    home, likes = kept(1, "home", "Rome", slot="home"), kept(2, "likes", "rain", slot="likes")
    mine = kept(3, "", "Lives in Braga", "user")
    for title, content, gone in (
        ("home", "Braga", [1]), ("", "Lives in Braga", [1]), ("likes", "jazz", []),
        ("", "Tall", []),
    ):  # fmt: skip
        written = NewRecord("profile", content, "user", title=title)
        assert giving_way([home, likes, mine], written, PROFILE_SLOTS) == gone
    assert taken_in([home, likes, mine], said("I love tea")).removed == [1]


def test_likes_have_a_bound_of_their_own() -> None:
    """Where there are too many, those go that were stated least often and longest ago."""
    likes = [
        kept(number, "likes", f"thing{number}", slot="likes", turn=number, times=1 + (number == 1))
        for number in range(1, 13)
    ]
    core = [kept(20, "name", "Ana", slot="name"), kept(21, "home", "Porto", slot="home")]
    news = taken_in([*likes, *core], said("I love rain", first=99))
    assert values(news.added) == [("likes", "rain")]
    assert news.removed == [2]
    stand = sorted([*likes, *core], key=profile_order)
    assert [each.title for each in stand[:2]] == ["name", "home"]


def test_to_like_and_to_dislike_exclude_each_other() -> None:
    """The newer holds."""
    news = taken_in([kept(1, "likes", "rain", slot="likes")], said("I don't like the rain"))
    assert [(each.id, values([record])) for each, record in news.changed] == [
        (1, [("dislikes", "the rain")])
    ]
    assert (news.added, news.removed) == ([], [])


def test_what_is_taken_back_goes() -> None:
    """By its value; nothing else does."""
    present = [kept(1, "home", "Rome", slot="home"), kept(2, "pets", "dog Scout", slot="pets")]
    assert taken_in(present, said("I don't live in Rome any more")).removed == [1]
    assert taken_in(present, said("I don't live in Oslo")) == ProfileChange()
    assert taken_in(present, said("My dog has died")).removed == [2]


def test_an_animal_that_gets_a_name_is_one_animal() -> None:
    """And keeps it where it is spoken of without."""
    news = taken_in([], said("I have a dog.", "My dog is called Scout.", "I have a dog"))
    assert values(news.added) == [("pets", "dog Scout")]


def test_what_is_said_again_is_counted_once_for_each_turn() -> None:
    """So that reading a turn again changes nothing."""
    tea = kept(1, "likes", "tea", slot="likes", turn=3, times=1)
    ((record, details, turns),) = taken_in([tea], said("I love tea", first=4)).again
    assert (record.id, details.times, details.turn, turns) == (1, 2, 4, (4,))
    ((_, details, _),) = taken_in([tea], said("I love tea", first=3)).again
    assert (details.times, details.turn) == (1, 3)


def test_what_was_removed_is_not_made_again() -> None:
    """That value; another one of the slot is."""
    home = kept(1, "home", "Porto", slot="home")
    assert removal_key(home) == key_of("home", "porto")
    news = taken_in([], said("I live in Porto", "I love tea"), removal_key(home))
    assert values(news.added) == [("likes", "tea")]


def test_entries_from_before_there_were_slots_are_made_clean() -> None:
    """Or go, where they say nothing of the user."""
    present = [
        kept(1, "likes rain", "I love rain, I could listen to it."),
        kept(2, "home", "She said I live in a dream"),
    ]
    news = taken_in(present, said("I love tea"))
    assert [(before.id, record.title, record.content) for before, record in news.changed] == [
        (1, "likes", "rain")
    ]
    assert news.removed == [2]


def test_a_companion_adds_slots_or_has_only_its_own() -> None:
    """Rules fill no slot that a companion does not have."""
    boat = {"boat": ProfileSlot("what the user sails")}
    assert list(slots_of(ProfileRules(slots=boat))) == [*PROFILE_SLOTS, "boat"]
    only = slots_of(ProfileRules(slots=boat, only=True))
    assert list(only) == ["boat"]
    assert news_of([], said("I live in Porto"), only, lambda _: False) == ProfileChange()
