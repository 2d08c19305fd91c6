"""Statements of speakers about themselves: exact values, and nothing that is not meant."""

import pytest

from foremind.text.statements.clauses import Statement
from foremind.text.statements.extraction import statements_in
from foremind.text.statements.vocabulary import WORDS
from foremind_eval.statement_reading import HALVES, measure_reading, read_messages
from tests.conftest import ROOT

LABELLED = ROOT / "training" / "statements"
_MAX_WRONG, _MIN_READ = 0.01, 0.8  # of what is read, and of plain facts


def stated(text: str) -> list[tuple[str, str]]:
    """The titles and values of what a text states."""
    return [(found.title, found.content) for found in statements_in(text) if found.holds]


@pytest.mark.parametrize(
    "file", ["sentences.jsonl", "earlier_sentences.jsonl", "fresh_sentences.jsonl"]
)
def test_what_is_read_is_right_and_what_is_plain_is_read(file: str) -> None:
    """In the half that the rules were tuned on, and in the half held out."""
    report = measure_reading(read_messages(LABELLED / file))
    for half in HALVES:
        assert report.halves[half].wrong_of_read <= _MAX_WRONG, report
        assert report.halves[half].read_of_plain >= _MIN_READ, report


def test_few_of_the_sentences_made_up_to_mislead_are_read_wrongly() -> None:
    """Jokes and puns in the form of plain statements: "I moved to Linux last year"."""
    report = measure_reading(read_messages(LABELLED / "adversarial_sentences.jsonl"))
    assert report.wrong_of_read <= 0.035, report
    assert report.read_of_plain >= 0.75, report


@pytest.mark.parametrize(
    ("text", "title", "value"),
    [
        ("Im vegan", "diet", "vegan"),
        ("Ive moved to Porto", "home", "Porto"),
        ("my names ana", "name", "ana"),
        ("I`m allergic to nuts", "health", "allergic to nuts"),
        ("I'm allergic to nuts, ok?", "health", "allergic to nuts"),
        ("I´m from Rome", "origin", "Rome"),
        ("don’t call me honey", "manner", "don't call me honey"),
        ("dont call me sweetie", "manner", "don't call me sweetie"),
        ("Just moved to Porto!", "home", "Porto"),
        ("I moved from Lisbon to Porto", "home", "Porto"),
        ("I started at Siemens last week", "employer", "Siemens"),
        ("My favourite colour is blue, no wait, green", "favourite colour", "green"),
        ("I'm 30, I mean 31", "age", "31"),
        ("I'm 30 *31", "age", "31"),
        ("My name isn't Bob, it's Rob", "name", "Rob"),
        ("I'm not from Rome but from Milan", "origin", "Milan"),
        ("My dog is called Max. Wait no, Mex.", "pets", "dog Mex"),
        ("I've just moved to Porto, near the river.", "home", "Porto"),
        ("Call me Sam", "name", "Sam"),
        ("Please keep your answers short!", "manner", "keep your answers short"),
        ("could you please stop using emojis?", "manner", "stop using emojis"),
        ("I prefer tea to coffee", "prefers", "tea to coffee"),
        ("I'm lactose intolerant", "health", "lactose intolerant"),
        ("I hate waiting in line", "dislikes", "waiting in line"),
        ("My dog is called Scout", "pets", "dog Scout"),
        ("I have a dog. His name is Scout.", "pets", "dog Scout"),
        ("My boat is called Aurora", "name of boat", "Aurora"),
        ('My favourite film is "Alien"', "favourite film", "Alien"),
        ("My favourite colour is dark green", "favourite colour", "dark green"),
        ("My name is Ana, what's yours?", "name", "Ana"),
        ("I'm married to Ben", "status", "married"),
        ("I never liked olives", "dislikes", "olives"),
        ("I've never been into football", "dislikes", "football"),
        ("I used to live in Rome but now I live in Turin", "home", "Turin"),
        ("Olives aren't my thing", "dislikes", "Olives"),
        ("I don't eat meat or fish", "diet", "no fish"),
        ("I'm Ana, 29, a nurse from Leeds", "job", "nurse"),
        # however strongly it is put
        ("I'm super allergic to peanuts", "health", "allergic to peanuts"),
        ("im deathly allergic to shellfish", "health", "allergic to shellfish"),
        ("I'm really, really allergic to cats", "health", "allergic to cats"),
        ("I'm like, soooo allergic to cats", "health", "allergic to cats"),
        ("I'm just a little allergic to cats", "health", "allergic to cats"),
        ("I'm allergic as hell to dust", "health", "allergic to dust"),
        ("I've got a really bad, life-threatening nut allergy", "health", "nut allergy"),
        ("I have terrible asthma", "health", "asthma"),
        ("im legally blind", "health", "blind"),
        ("I'm a very strict vegan", "diet", "vegan"),
        ("I freaking love tea", "likes", "tea"),
        # called by friends, in a short name that other languages have as a word
        ("call me Al", "name", "Al"),
        ("you can call me Al", "name", "Al"),
        ("please call me Al", "name", "Al"),
        ("feel free to call me Ben", "name", "Ben"),
        ("I'd like to be called Dan", "name", "Dan"),
        ("everyone calls me Al", "name", "Al"),
        ("they just call me Dan", "name", "Dan"),
        ("my name is al", "name", "al"),
        # in small letters, by those who write no others
        ("i live in porto", "home", "porto"),
        ("i live in new york with two friends", "home", "new york"),
        ("i was born in lviv and live in wroclaw now", "home", "wroclaw"),
        ("im from brazil", "origin", "brazil"),
        ("i moved from lisbon to porto", "home", "porto"),
        ("i work at bosch", "employer", "bosch"),
        ("im a nurse at siemens", "employer", "siemens"),
        ("I live in New York", "home", "New York"),
        ("Relocated to Nantes last month", "home", "Nantes"),
        ("we emigrated to Canada in 2019", "home", "Canada"),
        ("that's not my name, it's Rob", "name", "Rob"),
        ("No, that isn't my name. It's Rob.", "name", "Rob"),
        ("My favourite season is spring", "favourite season", "spring"),
        ("My favourite sport is swimming", "favourite sport", "swimming"),
        ("My favourite food is bread", "favourite food", "bread"),
        ("My favourite drink is hot chocolate", "favourite drink", "hot chocolate"),
        ("That's a good song. My favourite singer is Adele.", "favourite singer", "Adele"),
        ("Tom and I got divorced", "status", "divorced"),
        # said by oneself
        ("As I said: I live in Paris", "home", "Paris"),
        ('She said "hi". I live in Porto.', "home", "Porto"),
    ],
)
def test_a_value_is_exactly_what_was_said(text: str, title: str, value: str) -> None:
    """As a person would write it into a profile; of what is corrected, the last."""
    found = stated(text)
    assert (title, value) in found
    assert title in ("likes", "diet") or [found_title for found_title, _ in found].count(title) == 1


@pytest.mark.parametrize(
    "text",
    [
        "*I live in the dark forest of Mor*",
        "*waves* I am Kael, ranger of the north",
        "Translate to German: I live in Porto",
        "Example sentence: I live in Porto",
        "> I live in Berlin",
        "```\nI live in Berlin\n```",
        "`I live in Berlin`",
        "Can you say 'my name is Ana' in Portuguese?",
        "My name is none of your business",
        "My favourite colour's gone",
        "My favourite food's burning",
        "My favourite show's cancelled",
        "My favourite song is playing",
        "My favourite team is losing again",
        "My favourite restaurant is closed",
        "My favourite film is overrated",
        "My favourite band is awesome",
        "For the story, I'm a widow.",
        "For the sake of the story I'm a widow.",
        "in this story I'm a widow",
        "My name is Slim Shady (that's a song)",
        "I live in Porto, it's a quote",
        "I am 007",
        "I live in Excel",
        "I moved to Linux",
        "Traduis en français : I am vegan",
        "Übersetze: I am vegan",
        "Traduce al inglés: I am vegan",
        "Hypothetically, I'm a vegan",
        "Bello died",
        "no, it's Rob, not Bob",
        "Bosch let me go",
        "I switched from Windows to Linux",
        "I'm Team Edward",
        "“I live in Venice”, said the sailor",
        "ANNA: I have a sister.\nBEN: I have none.",
        "♪ my name is Luka, I live on the second floor ♪",
        "My Name Is Earl is hilarious",
        "She said I live in a dream",
        "And she was like, I'm vegan, and I was like, okay",
        "According to the test I'm 70 percent Irish",
        "I live in Porto. Just kidding!",
        "I'm a nurse... not!",
        "I have three cats, or had",
        "Isn't my dog called Scout",
        "I live in Porto, right?",
        "I'm married to my work",
        "I'm engaged in a long quest",
        "I'm allergic to getting up early",
        "I'm a terrible cook",
        "I've got two fish in the freezer",
        "I never liked olives until I tried these",
        "My brother lives in Oslo",
        "If I lived in Rome, I would eat ice cream",
        "I'll be 30 in May",
        "I start at Siemens next week",
        "I wish I had a dog",
        "You live in Porto, right?",
        "I love the friends I have",
        "My ex husband is called Tom",
        "I love the self-acceptance and love theme",
        "I've always had a love for horses",
        "My cat is Orange",
        "I love Sarah",
        "I'm Hangry",
        "I'm Labour, my dad is Tory",
        "My favourite jumper is blue",
        "I live in porto",
        "I'm not super allergic to nuts",
        "I'm practically vegan",
        "I'm hardly allergic to cats",
        "call me later",
        "call me a cab",
        "call me crazy but I like it",
        "call me when you're home",
        "call me Monday",
        "call me lazy",
        "everyone calls me when they need something",
        "i live in fear",
        "i live in denial",
        "i live in uncertainty",
        "i live in a small flat",
        "i live in leggings",
        "i work at night",
        "i work at home",
        "i work for food",
        "im from work",
        "i moved to linux",
        "my boss wrote me this: I hate working here and I live in Paris",
        "She said: my name is Bob. I hate fish.",
        "My friend from work texted me: I'm allergic to nuts",
        'She told me "I hate fish"',
        "message from my boss: I live in Paris",
        "My sister was like: I love olives",
    ],
)
def test_what_is_not_meant_states_nothing(text: str) -> None:
    """Play, quotations, mentions, other people, questions, wishes, plans, jokes, idioms."""
    assert stated(text) == []


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("dont call me sweetie", [("name", "sweetie")]),
        ("i didnt say my name is Bob", [("name", "Bob")]),
        ("Forget that I live in Porto", [("home", "Porto")]),
        ("I'm not vegan anymore", [("diet", "vegan")]),
        (
            "no longer allergic to nuts",
            [("health", "allergic to nuts"), ("health", "nuts allergy")],
        ),
        ("I don't have a dog", [("pets", "dog")]),
        ("left Lisbon", [("home", "Lisbon"), ("employer", "Lisbon")]),
        ("buried Rex", [("pets", "Rex"), ("family", "Rex")]),
        ("my husband Tom died in March", [("family", "husband Tom"), ("status", "")]),
        ("I quit my job", [("job", ""), ("employer", "")]),
        ("I moved from Lisbon to Porto", [("home", "Lisbon")]),
        ("My name isn't Bob, it's Rob", [("name", "Bob")]),
        ("I don't live in Rome any more", [("home", "Rome")]),
        ("I used to live in Rome", [("home", "Rome")]),
        ("My dog has died", [("pets", "dog")]),
        ("I stopped being vegan", [("diet", "vegan")]),
        ("stop saying my name is Bob", [("name", "Bob")]),
        ("my boyfriend and i broke up", [("family", "boyfriend"), ("status", "")]),
        ("Forget my name", [("name", "")]),
        # by the name alone
        ("we had to put Bello down", [("pets", "Bello"), ("family", "Bello")]),
        ("Bello had to be put to sleep", [("pets", "Bello"), ("family", "Bello")]),
        ("I got fired from Bosch", [("employer", "Bosch")]),
        ("I resigned from Bosch", [("employer", "Bosch")]),
        *(
            (text, [("pets", "Bello"), ("family", "Bello")])
            for text in (
                "Bello died",
                "Bello died yesterday",
                "Bello has passed away",
                "Bello is dead",
                "we lost Bello last week",
                "I lost Bello to cancer",
                "Bello ran away",
                "Bello was put down this morning",
                "Bello is no longer with us",
                "our Bello died",
                "Bello died when I was six",
            )
        ),
        (
            "turns out I'm not allergic to nuts after all",
            [("health", "allergic to nuts"), ("health", "nuts allergy")],
        ),
        *(
            (text, [("health", "nut allergy"), ("health", "allergic to nut")])
            for text in (
                "I outgrew my nut allergy",
                "My nut allergy is gone",
                "I no longer have a nut allergy",
            )
        ),
        ("Tom and I broke up", [("family", "Tom"), ("status", "")]),
        ("Tom and I got divorced", [("family", "Tom")]),
        ("my husband Tom and I are divorced", [("family", "husband Tom")]),
        ("I divorced Tom last year", [("family", "Tom")]),
        *(
            (text, [("employer", "Bosch")])
            for text in (
                "Bosch let me go",
                "Bosch has fired me",
                "I was made redundant from Bosch",
                "I switched from Bosch to Siemens",
                "Got laid off by Bosch",
            )
        ),
        ("My phone died", []),
        ("My phone is dead", []),
        ("I lost the game to Bosch", []),
        ("He died last week", []),
        ("The fire died", []),
    ],
)
def test_what_no_longer_holds_is_retracted(text: str, ended: list[tuple[str, str]]) -> None:
    """By its value, or whatever the value was."""
    retracted = [(found.title, found.content) for found in statements_in(text) if not found.holds]
    assert retracted == ended


def test_what_is_said_of_a_taste_is_none() -> None:
    """It gives the reason."""
    assert stated("I don't like tea, it's bitter") == [("dislikes", "tea")]


def test_a_retraction_has_its_kind_and_value() -> None:
    """So that a dog ends, whatever its name."""
    assert statements_in("My dog has died") == [Statement("pets", "", "dog", holds=False)]


@pytest.mark.parametrize(
    "repeated",
    ["i have a ", "I'm a ", "my favourite a is ", "I like the ", "i " * 5, "\n", "and i ", "a, ",
     "no wait ", "'a b "],
)  # fmt: skip
def test_a_hostile_text_is_read_quickly(repeated: str) -> None:
    """No text of the maximum length of a message causes catastrophic backtracking."""
    assert len(statements_in(repeated * 16_000)) < 1000


def test_no_entry_of_a_word_list_is_empty() -> None:
    """An empty one would match everything."""
    assert {"KIN", "TRADES", "CONDITIONS"} <= WORDS.keys()
    for name, words in WORDS.items():
        assert words == {" ".join(word.split()) for word in words} - {""}, name


def test_other_languages_are_not_read_as_english() -> None:
    """The same words mean something else."""
    assert statements_in("My name is Ana")
    assert statements_in("Ich habe gesagt: My name is Ana, das ist mein Name") == []
