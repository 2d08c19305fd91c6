"""What a draft asks for."""

from datetime import UTC, datetime

from foremind.retrieval.query_parser import EventAnchor, read_draft

NOW = datetime(2023, 6, 15, 9, 30, tzinfo=UTC)


def test_an_event_may_stand_for_a_time() -> None:
    """ "Before the wedding" is a time once the wedding is found."""
    asked = read_draft("What did I do before the wedding?", NOW)
    assert asked.anchors == (EventAnchor("before", ("wed",)),)
    assert asked.times == ()


def test_a_date_needs_no_event() -> None:
    """Where a time is named, it is the time."""
    asked = read_draft("What did I say last week, before the storm?", NOW)
    assert asked.anchors == ()
    assert len(asked.times) == 1


def test_questions_about_the_past_are_known_by_their_words() -> None:
    """They want what no longer holds."""
    assert read_draft("Where did I live before?", NOW).about_the_past
    assert read_draft("Where did I use to work? I used to", NOW).about_the_past
    assert not read_draft("Where do I live?", NOW).about_the_past
