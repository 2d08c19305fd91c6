"""When not to recall."""

import pytest

from foremind.retrieval.recall_gate import only_asks, worth_searching


@pytest.mark.parametrize(
    "text",
    [
        "What's my sister's name?",
        "do you remember the storm",
        "Who is Jill?",
        "What does Evan do to relax?",
        "when did we meet",
    ],
)
def test_who_asks_for_a_memory_is_let_through(text: str) -> None:
    """Whatever the learned head says."""
    assert worth_searching(text, -5.0)


@pytest.mark.parametrize("hello", ["", "Hey, ", "so ", "Oh! And "])
@pytest.mark.parametrize(
    "question",
    [
        "Who opens the door?",
        "Whom did they invite?",
        "whose coat is it",
        "What's on the table?",
        "When should the humping stop?",
        "where were everyone going",
        "Which boat sank?",
        "WHY does she want to see him?",
        "How many eggs are left?",
        "How are you getting to Porto?",
        "What are you doing on the balcony?",
        "Did the cat get kittens?",
        "was Ines at the harbour",
        "Have we met?",
        "whos opening the door",
        "wheres the key",
        "Do you know who opens the door?",
        "could anybody say where the key is",
        "can you tell me which boat sank",
    ],
)
def test_what_begins_as_a_question_is_let_through(hello: str, question: str) -> None:
    """Also after a word of greeting."""
    assert worth_searching(hello + question, -5.0)


@pytest.mark.parametrize(
    "text",
    [
        "what?",
        "whats up",
        "hows it going",
        "do you know what?",
        "Do you know what I mean?",
        "Why not",
        "who knows...",
        "How are you?",
        "how's it going, mate?",
        "What's up!",
        "Hey, what have you been up to?",
        "How was your weekend?",
        "What a lovely photo!",
        "How exciting! Tell me all about it.",
        "What do you think?",
        "what about you?",
        "Do you get lonely out here?",
        "Is that normal?",
        "will do",
        "whatever",
    ],
)
def test_turns_of_phrase_ask_for_nothing(text: str) -> None:
    """Though they look like questions."""
    assert not worth_searching(text, -5.0)


@pytest.mark.parametrize("text", ["The one we talked about", "as you suggested", "like last time"])
def test_who_refers_back_is_let_through(text: str) -> None:
    """What was said before is what memories are."""
    assert worth_searching(text, -5.0)


def test_filler_is_stopped_and_doubt_is_not() -> None:
    """Without a head nothing but silence is stopped."""
    assert not worth_searching("haha yeah", -1.0)
    assert worth_searching("haha yeah", None)
    assert worth_searching("The ferry was late", 0.1)
    assert not worth_searching("  ", None)


@pytest.mark.parametrize("hello", ["", "Hey, ", "so "])
@pytest.mark.parametrize(
    "text",
    [
        "Where do I live?",
        "what was the name of my dog again",
        "whats my dogs name",
        "where does Tomas live",
        "what did Rita bake for the wedding",
        "Can you tell me where my dog sleeps?",
        "remind me what my boss is called",
        "I wonder what my dog is called",
        "Did I tell you where I live?",
        "Did I tell you my name?",
        "Do you know my sister?",
    ],
)
def test_a_question_states_nothing(hello: str, text: str) -> None:
    """However it is put, with its mark or without."""
    assert only_asks(hello + text)


@pytest.mark.parametrize("hello", ["", "Hey, ", "so "])
@pytest.mark.parametrize(
    "text",
    [
        "Did you know that I moved to Porto?",
        "did you know my sister is a nurse",
        "Did I tell you I got a new job at the harbour?",
        "Have I ever mentioned that my brother plays the cello?",
        "Can you believe the storm took our roof?",
        "When I was the captain we won every game",
        "What it did for me was more than I hoped",
        "Remind me when the cake is done",
        "I wonder if I should leave my job",
        "My dog sleeps in the kitchen. Where does yours sleep?",
        "What a day, I lost the ring of my mother",
    ],
)
def test_what_tells_something_is_no_question(hello: str, text: str) -> None:
    """Though it begins or ends like one."""
    assert not only_asks(hello + text)
