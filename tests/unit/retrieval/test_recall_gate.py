"""The recall gate."""

import pytest

from foremind.retrieval.recall_gate import asks_for_memory, worth_searching


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
def test_explicit_requests_pass(text: str) -> None:
    """Whatever the classifier says."""
    assert worth_searching(text, -5.0)


@pytest.mark.parametrize("greeting", ["", "Hey, ", "so ", "Oh! And "])
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
def test_questions_pass(greeting: str, question: str) -> None:
    """Also after a greeting."""
    assert worth_searching(greeting + question, -5.0)


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
def test_turns_of_phrase_do_not_pass(text: str) -> None:
    """They only look like questions."""
    assert not worth_searching(text, -5.0)


@pytest.mark.parametrize("text", ["The one we talked about", "as you suggested", "like last time"])
def test_references_to_earlier_conversation_pass(text: str) -> None:
    """They need memories."""
    assert worth_searching(text, -5.0)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("tell me about Cape Sorrow", True),
        ("show me the map", True),
        ("Please show me the map again", True),
        ("Hey, could you read me the recipe?", True),
        ("give me the gate code", True),
        ("ok, tell us more about the lighthouse", True),
        ("show the list", True),
        ("Describe Cape Sorrow", True),
        ("look up the address", True),
        ("let me see the map", True),
        ("find that recipe", True),
        ("I want you to tell me about Mira", True),
        ("tell me all about it", False),
        ("Tell me about yourself", False),
        ("give me a break", False),
        ("show me a trick", False),
        ("I told Ines about the map", False),
        ("The map shows the cape", False),
        ("tell him about the party", False),
        ("ok, got it", False),
    ],
)
def test_requests_to_be_told_or_shown_something_pass(text: str, asks: bool) -> None:
    """As questions do, but no phrases, and nothing that states something."""
    assert asks_for_memory(text) is asks


@pytest.mark.parametrize(
    ("language", "request_", "statement"),
    [
        ("de", "Zeig mir die Karte", "Die Karte zeigt das Kap"),
        ("es", "Muéstrame el mapa", "El mapa muestra el cabo"),
        ("fr", "Montre-moi la carte", "La carte est à Paul"),
        ("it", "Mostrami la mappa", "La mappa è mia"),
        ("pt", "Mostra o mapa, por favor", "O mapa é do Paulo"),
        ("nl", "Laat me de kaart zien", "De kaart is van mij"),
        ("pl", "Pokaż mi mapę", "Mapa jest moja"),
        ("ru", "Покажи мне карту", "Карта лежит дома"),
        ("tr", "Bana haritayı göster", "Harita evde duruyor"),
        ("ja", "地図を見せて", "地図は家にあります"),
        ("ko", "지도를 보여줘", "지도는 집에 있어요"),
        ("zh", "给我看地图", "他告诉我地图在家里"),
        ("th", "ขอดูแผนที่", "แผนที่อยู่ที่บ้าน"),
    ],
)
def test_requests_pass_in_every_language(language: str, request_: str, statement: str) -> None:
    """By the words of its file."""
    assert asks_for_memory(request_, language)
    assert not asks_for_memory(statement, language)


def test_other_texts_pass_according_to_the_classifier() -> None:
    """Without a classifier, only an empty text is rejected."""
    assert not worth_searching("haha yeah", -1.0)
    assert worth_searching("haha yeah", None)
    assert worth_searching("The ferry was late", 0.1)
    assert not worth_searching("  ", None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wie heißt mein Hund?", True),
        ("ich gehe mit dem Hund spazieren", True),
        ("我的狗叫什么名字", True),
        ("Danke schön!", False),
        ("そうですね", False),
    ],
)
@pytest.mark.parametrize("log_odds", [None, -5.0, 5.0])
def test_content_opens_the_gate_in_other_languages(
    text: str, expected: bool, log_odds: float | None
) -> None:
    """The classifier was trained on English."""
    assert worth_searching(text, log_odds) is expected


def test_the_players_language_decides_about_few_words() -> None:
    """The classifier was trained on English; fillers of any language open nothing."""
    assert worth_searching("Zoo Leipzig Samstag", -5.0, "de")
    assert not worth_searching("Zoo Leipzig Samstag", -5.0)
    assert not worth_searching("prima", -5.0, "de")
