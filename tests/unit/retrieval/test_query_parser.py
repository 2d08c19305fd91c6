"""The query parser."""

from datetime import UTC, datetime

from foremind.retrieval.ranking import EventAnchor, parse_query

NOW = datetime(2023, 6, 15, 9, 30, tzinfo=UTC)


def test_a_time_may_be_relative_to_an_event() -> None:
    """ "Before the wedding" becomes a time once the wedding is found."""
    query = parse_query("What did I do before the wedding?", NOW)
    assert query.anchors == (EventAnchor("before", ("wed",)),)
    assert query.times == ()


def test_an_explicit_time_takes_precedence_over_an_event() -> None:
    """The event is then ignored."""
    query = parse_query("What did I say last week, before the storm?", NOW)
    assert query.anchors == ()
    assert len(query.times) == 1


def test_questions_about_the_past_are_recognised_by_keywords() -> None:
    """For these, superseded memories are wanted."""
    assert parse_query("Where did I live before?", NOW).about_the_past
    assert parse_query("Where did I use to work? I used to", NOW).about_the_past
    assert not parse_query("Where do I live?", NOW).about_the_past


def test_few_words_are_searched_for_in_the_players_language() -> None:
    """By what their synonyms share, and without the times that are read in English only."""
    assert "≈vater" in parse_query("Vater", NOW, "de").terms
    assert "≈vater" not in parse_query("Vater", NOW).terms
    assert parse_query("yesterday", NOW).times and not parse_query("yesterday", NOW, "de").times
    assert parse_query("what did I say yesterday", NOW, "de").times
