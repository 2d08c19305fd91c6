"""The recall gate."""

import pytest

from foremind.retrieval.classifiers import asks_for_memory, worth_searching


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
        ("I want to hear about Cape Sorrow", True),
        ("I'd love to hear more about the lighthouse", True),
        ("I want to see the map", True),
        ("Can we read the recipe again", True),
        ("more about Cape Sorrow", True),
        ("I'm curious about the lighthouse", True),
        ("the map, please", True),
        ("The gate code again, please!", True),
        ("Cape Sorrow please", True),
        ("the map?", True),
        ("I need the gate code", True),
        ("could u open the map pls", True),
        ("pls show me the map", True),
        ("the map plz", True),
        ("do u have the map", True),
        ("do you still have the map", True),
        ("any idea about the map?", True),
        ("got any clue about the gate code", True),
        ("do u like ships", False),
        ("no idea about the map", False),
        ("tell me all about it", False),
        ("I want to hear about it", False),
        ("I want to learn Spanish", False),
        ("I'd love to go to the beach", False),
        ("yes please", False),
        ("stop it, please", False),
        ("The ferry was late", False),
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
    "text",
    [
        "muéstrame Cape Sorrow", "cuéntame de Cape Sorrow", "dime algo de Cape Sorrow",
        "parle-moi de Cape Sorrow", "raconte-moi Cape Sorrow", "montre Cape Sorrow",
        "dis-moi tout sur Cape Sorrow", "fala-me de Cape Sorrow", "mostre Cape Sorrow",
        "me fala de Cape Sorrow", "zeig mir Cape Sorrow", "zeig die Karte",
        "parlami di Cape Sorrow",
        "mostrami Cape Sorrow", "vertel me over Cape Sorrow", "laat Cape Sorrow zien",
        "opowiedz mi o Cape Sorrow", "göster Cape Sorrow", "bana Cape Sorrow anlat",
        "расскажи про Cape Sorrow", "Cape Sorrowを見せて", "Cape Sorrow 보여줘",
        "给我看Cape Sorrow",
        "háblame de Cape Sorrow", "mostra-me Cape Sorrow", "erzähl mir von Cape Sorrow",
    ],
)  # fmt: skip
def test_a_request_tells_its_own_language(text: str) -> None:
    """Where the player's is not known."""
    assert asks_for_memory(text)


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
        ("de", "Ich will von Kap Sorrow hören", "Kap Sorrow liegt im Norden"),
        ("de", "Die Karte, bitte!", "Die Karte ist bei Paul"),
        ("es", "Quiero saber más del cabo", "El cabo queda lejos"),
        ("es", "El mapa, por favor", "El mapa es mío"),
        ("fr", "J'aimerais en savoir plus sur le cap", "Le cap est loin d'ici"),
        ("fr", "La carte, s’il te plaît", "La carte est chez Paul"),
        ("it", "Vorrei sapere del capo", "Il capo è lontano"),
        ("it", "La mappa, per favore", "La mappa è a casa"),
        ("pt", "Quero ouvir falar do cabo", "O cabo fica longe"),
        ("nl", "Ik wil over de kaap horen", "De kaap is ver weg"),
        ("pl", "Chciałbym usłyszeć o przylądku", "Przylądek jest daleko"),
        ("ru", "Хочу услышать о мысе", "Мыс далеко отсюда"),
        ("tr", "Burun hakkında duymak istiyorum", "Burun çok uzakta"),
        ("ja", "岬の話を聞きたい", "岬は遠いです"),
        ("ko", "곶 이야기를 듣고 싶어", "곶은 멀어요"),
        ("zh", "我想听海角的故事", "海角很远"),
        ("th", "อยากฟังเรื่องแหลม", "แหลมอยู่ไกล"),
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
