"""Which texts some words are about."""

import pytest

from foremind.text.mentions import parse_mention

BUS = "my bus was late because of dust"


def mentioned(about: str, *texts: str, language: str | None = None) -> list[bool]:
    """Return for each text whether the words mention it."""
    mention = parse_mention(about, language)
    assert mention is not None, about
    return [mention.found_in(text) for text in texts]


@pytest.mark.parametrize(
    ("about", "language"),
    [(word, None) for word in ["in", "he", "it", "so", "an", "i", "us", "the", "and", "of"]]
    + [
        ("I", None),
        ("I'm", None),
        ("'", None),
        ("''", None),
        ('"', None),
        ('""', None),
        ("?", None),
    ]
    + [
        ("the and of", None),
        ("it's", None),
        ("she'll", None),
        ("ill", None),
        ("may", None),
        ("might", None),
        ("don't", None),
        ("🐶", None),
        ("「」", None),
        (" ", None),
    ]
    + [
        ("die", "de"),
        ("la", "es"),
        ("что", None),
        ("我", None),
        ("の", None),
        ("です", None),
        ("나", None),
    ],
)
def test_words_that_tell_nothing_apart_are_refused(about: str, language: str | None) -> None:
    """Whatever the language."""
    assert parse_mention(about, language) is None


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ("Us", "Us two against the world"),
        ("An", "My aunt An grows roses"),
        ("So", "Her name is So"),
        ("He", "The element He is light"),
        ("IT", "She works in IT"),
        ("Will", "My brother Will's boat"),
        ("brother Will", "My brother Will is a vet"),
        ("aunt An", "My aunt An grows roses"),
        ("Aunt An", "my aunt An grows roses"),
        ('"will"', "grandpa wrote a will"),
        ("“IT”", "She works in IT"),
        ("'An'", "My aunt An grows roses"),
        ("The Who", "I saw The Who live"),
        ('"The Who"', "I saw The Who live"),
        ("Will Smith", "my neighbour will smith moved"),
        ("IT department", "the IT department moved"),
        ("US visa", "my US visa expires"),
        ("May", "My cousin May paints"),
        ("aunt May", "my aunt May paints"),
        ("ID", "my ID is lost"),
    ],
)
def test_stop_words_count_as_they_are_written_if_they_are_capitalised_or_quoted(
    about: str, text: str
) -> None:
    """As names are; never as a part of another word, nor in another case."""
    kept = (
        BUS,
        "so he would be in it an hour, us too",
        "Antonia's bus, Isolde, Hera, Willa, ITEM",
        "who smelt the department, the visa is with us",
        "my aunt, an",
        "my aunt may id it",
    )
    assert mentioned(about, text, *kept) == [True, *[False] * len(kept)]


@pytest.mark.parametrize(
    ("about", "text", "kept"),
    [
        ("Will Smith", "I met Will Smith", "Mr. Smith said he will come"),
        ("The Who", "I saw The Who", "The dog barked. Who came?"),
        ("The garden", "in the garden", "the wardens"),
        ("My dog", "the dogs bark", "my cat"),
        ("Will is a vet", "Will is a vet", "Anna is a vet"),
        ('"Rex"', "Rex's bone", "Rexy barks"),
        ('"Mary"', "Mary sings", "Mari sings"),
        ('"the red door"', "Behind the Red Door", "the door is red"),
        ("red door", "the door is red", "the door is blue"),
        ("Die Katze", "die Katze schläft", "meine Katze schläft"),
        ("Meine Katze", "die Katzen schlafen", "meine Hunde"),
        ("l'école", "à l'école de Lyon", "le lycée de Lyon"),
        ("Don", "uncle Don sails", "we don't sail"),
        ("xylophone", "two Xylophones", "the telephone"),
        ("ill mother", "my mother was ill", "my mother bakes"),
        ("id card", "my id card", "a card, I'd say"),
        ("shell", "a shell", "she'll sing"),
        ("garden shed", "the shed in the garden", "she'd garden"),
        ("sea glass", "sea glass", "a glass"),
        ("door bell", "the bell on the door", "a bell"),
        ("soy milk", "soy milk", "some milk"),
        ("sister-in-law", "my sister-in-law", "my sister reads law"),
        ("check-in", "the check-in", "check it"),
        ("Jean-Luc's", "Jean Luc sails", "Jean and Luc sail"),
        ("Xi'an", "in Xi'an", "president Xi"),
        ("rock'n'roll", "Rock’n’Roll", "a rock"),
    ],
)
def test_words_are_whole_words(about: str, text: str, kept: str) -> None:
    """Inflected unless they are quoted; names of several words stay together."""
    assert mentioned(about, text, kept) == [True, False]


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ("Jose", "José is my uncle"),
        ("José", "jose is my uncle"),
        ("ipek", "İpek is my aunt"),
        ("İpek", "ipek is my aunt"),
        ("IPEK", "İpek'in evi"),
        ("isik", "Işık is her name"),
        ("OBrien", "Mr. O'Brien called"),
        ("O'Brien", "mr obrien called"),
        ("o brien", "Mr. O'Brien called"),
        ("O'Brien", "mr o brien called"),
        ("kevin o brien", "Kevin O'Brien"),
        ("d angelo", "D'Angelo sings"),
        ("Mc Donald", "old McDonald"),
        ("fogs", "The fog came"),
        ("vitamin d levels", "levels of vitamin d"),
        ("O’Brien", "Mr. O´Brien called"),
        ("Zoe", "Zoë has a cat"),
        ("Zoë", "Zoe's cat"),
        ("Renee", "Renée paints"),
        ("Muller", "Frau Müller wohnt hier"),
        ("Mueller", "Frau Müller wohnt hier"),
        ("Müller", "Frau Mueller wohnt hier"),
        ("strasse", "die Straße ist lang"),
        ("Soren", "Søren sails"),
        ("Lukasz", "Łukasz sails"),
        ("Семен", "Семён рыбачит"),
        ("Νικος", "Ο Νίκος ψαρεύει"),
        ("محمد", "مُحَمَّد is my friend"),
        ("Zoe\u0308", "Zoë has a cat"),
        ("ＰＯＲＴＯ", "I live in Porto"),
        ("912345678", "call me at +351 912 345 678"),
        ("912 345 678", "call me at 00351912345678"),
        ("+351 912 345 678", "my number is 912345678."),
        ("351912345678", "my number is 912-345-678"),
        ("(912) 345.678", "+351912345678"),
        ("020 7946 0958", "ring +44 20 7946 0958"),
        ("٩١٢٣٤٥٦٧٨", "call 912 345 678"),
        ("my number 912345678", "my number: 912 345 678 2 of them"),
        ("4711", "the PIN is 4711"),
        ("Artagnan", "le comte d'Artagnan"),
    ],
)
def test_spellings_of_a_word_are_the_same_word(about: str, text: str) -> None:
    """As they are for search."""
    assert mentioned(about, text, BUS) == [True, False]


@pytest.mark.parametrize(
    ("about", "text", "kept"),
    [
        ("C++", "I write c++.", ["vitamin C", "C# is alike", "C++17 is newer"]),
        ("C", "vitamin C", ["I write C++", "C# is alike", "C++17 is newer"]),
        ("C#", "I write C#", ["vitamin C", "I write C++"]),
        (".NET", "I use .NET", ["a fishing net", "ASP.NET"]),
        ("net", "a fishing net", ["I use .NET"]),
        ("R&D", "She leads R & D", ["R is better than D", "R and D"]),
        ("R", "I write R", ["She leads R&D", "She leads R & D"]),
        ("AT&T", "AT&T's office", ["AT T", "look at the T"]),
        ("T", "my T shirt", ["I work at AT&T"]),
        ("AC/DC", "I saw AC/DC", ["AC and DC"]),
        ("Node.js", "node.js is fast", ["a node of js"]),
        ("node", "Node.js is fast", ["anode.io"]),
        ("P!nk", "I saw P!nk", ["p or nk"]),
        ("$5", "it cost $5.", ["5 of us", "$50", "$5.50"]),
        ("50%", "50% of it", ["50 of us"]),
        ("10:30", "at 10:30", ["10 of 30"]),
        ("3.5", "3.5 kg", ["5 of 3", "13.5", "3.55"]),
        ("ana@example.com", "ask ana@example.com", ["ana of example com", "jana@example.com"]),
        ('"my C++ book"', "My C++ book", ["my C++ red book"]),
    ],
)
def test_words_with_symbols_are_only_what_is_written_so(
    about: str, text: str, kept: list[str]
) -> None:
    """Nor are they found by the words without symbols that they begin or end with."""
    assert mentioned(about, text, *kept) == [True, *[False] * len(kept)]


@pytest.mark.parametrize(
    ("about", "text", "kept"),
    [
        ("buses", "my bus was late", "it confuses us"),
        ("bus", "the buses were late", "he abuses it"),
        ("mice", "I saw a mouse", "I saw a moose"),
        ("child", "two children", "a chill"),
        ("1990", "in the 1990s", "19905"),
        ("1990s", "born in 1990", "90"),
        ("IBM", "I work at I.B.M.", "I, B, M"),
        ("I.B.M.", "I work at IBM", "I, B, M"),
        ("US", "I live in the U.S.", "with us"),
        ("wifi", "the Wi-Fi is slow", "wi fi"),
        ("email", "my E-mail is new", "mail"),
        ("e-mail", "my email is new", "mail"),
        ("Jean-Luc", "JeanLuc sails", "Jean sails"),
        ("werewolf", "a were-wolf", "a wolf"),
        ("were-wolf", "a werewolf", "a wolf"),
        ("PhD", "my Ph.D. is late", "P, h, D"),
        ("Ph.D.", "my PhD is late", "P, h, D"),
        ("1,000", "it cost 1000", "1 of 000"),
        ("1 000", "it cost 1,000", "1 of 10"),
        ("1000", "it cost 1.000", "1 of 10"),
        ("90210", "902 10 Umeå", "902"),
        ("902 10", "90210 Umeå", "902"),
        ("1010 AB", "1010AB Amsterdam", "1010"),
        ("AB 1234", "my plate is AB1234", "1234"),
        ("PIN 4711", "the PIN is 4711", "4711"),
        ("Bela", "my friend Be\u200bla", "Be, la"),
        ("Be\u00adla", "my friend \u202aBela\u202c", "Be, la"),
        ("DE89370400440532013000", "it is DE89 3704 0044 0532 0130 00", "DE89 3704 0044 0532 01"),
        ("DE89 3704 0044 0532 0130 00", "IBAN DE89370400440532013000", "DE 3704 0044"),
        ("GB29 NWBK 6016 1331 9268 19", "gb29nwbk60161331926819", "NWBK 6016"),
        ("SW1A 1AA", "I live at SW1A1AA", "SW1A 1AB"),
        ("AB-12-CD", "my plate is AB12CD", "AB and CD 12"),
        ("F-16", "two F16s", "16 of F"),
        ("covid-19", "I had Covid 19", "19 had Covid"),
    ],
)
def test_forms_of_a_word_are_found(about: str, text: str, kept: str) -> None:
    """Plurals, initials with points, and what is grouped in another way."""
    assert mentioned(about, text, kept) == [True, False]


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ("912345678", "my number is 912 345 679"),
        ("912345678", "my number is 9123456789"),
        ("2345678", "order 12345678"),
        ("4711", "47 11 times"),
        ("471", "the PIN is 4711"),
        ("Ana", "Anastasia, banana"),
        ("राम", "मेरा मन"),
    ],
)
def test_other_words_and_numbers_are_not(about: str, text: str) -> None:
    """However much of it they share."""
    assert mentioned(about, text) == [False]


@pytest.mark.parametrize(
    ("about", "text", "kept"),
    [
        ("猫", "私の猫はタマです", "犬がいます"),
        ("私の猫", "猫を飼っています", "私の犬です"),
        ("犬の名前", "犬の名前はポチ", "名前は犬です"),
        ("バス", "バスに乗る", "バスケットが好き"),
        ("さくら", "妹はさくらです", "花がさく。くらい夜"),
        ("くら", "くらに入る", "さくらが咲く"),
        ("我的猫", "猫叫小白", "我的狗"),
        ("北京", "我住在北京", "我住在南京"),
        ("고양이", "고양이가 자요", "강아지가 자요"),
        ("개", "개를 키워요", "무지개와 번개"),
        ("민수", "민수씨는 의사예요", "김민준은 의사예요"),
        ("แมว", "ฉันเลี้ยงแมว", "ฉันเลี้ยงหมา"),
        ("राम", "मेरा नाम राम है", "मेरा मन"),
    ],
)
def test_words_are_whole_in_scripts_that_do_not_separate_them(
    about: str, text: str, kept: str
) -> None:
    """As far as the characters around them tell."""
    assert mentioned(about, text, kept) == [True, False]


def test_near_spellings_are_those_of_words_that_do_not_occur() -> None:
    """As they are written, nearest first."""
    mention = parse_mention("Mertha's bycicle", None)
    assert mention is not None
    texts = ("Martha rides", "The bicycle of Bertha", BUS)
    assert mention.near_spellings(texts)[:2] == ["Martha", "Bertha"]
    known = parse_mention("bus", None)
    assert known is not None
    assert known.near_spellings((BUS,)) == []
    plural = parse_mention("fogs", None)
    assert plural is not None
    assert plural.near_spellings(["a foggy night"]) == ["foggy"]
