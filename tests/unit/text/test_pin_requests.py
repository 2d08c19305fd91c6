"""What asks to have something pinned."""

import pytest

from foremind.text.languages.language_files import LANGUAGES
from foremind.text.pin_requests import text_to_pin


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("save this: the gate code is 4711", "the gate code is 4711"),
        ("please save this for later: two\nlines", "two\nlines"),
        ("Can you write this down: oats, milk", "oats, milk"),
        ("Merk dir das bitte: Der Code ist 4711", "Der Code ist 4711"),
        ("guarda esto por favor: la llave", "la llave"),
        ("Note ça s'il te plaît : le code", "le code"),
        ("запомни, пожалуйста: код 4711", "код 4711"),
        ("これを保存して：鍵は鉢の下", "鍵は鉢の下"),
        ("请记住：密码是1234", "密码是1234"),
        ("Pin this: the map", "the map"),
        ("Remember this forever: you matter", "you matter"),
        ("please pin that the gate code is 4711", "the gate code is 4711"),
        ("Please pin that: the map", "the map"),
        ("Wren, could you please pin this for me: the map", "the map"),
        ("Don’t forget that Ines is my sister", "Ines is my sister"),
        ("note that down, the map", "the map"),
        ("Pinne das an: die Karte", "die Karte"),
        ("Merk dir für immer: die Karte", "die Karte"),
        ("Merk dir, dass mein Code 4711 ist", "mein Code 4711 ist"),
        ("recuerda esto para siempre: el mapa", "el mapa"),
        ("Recuerda que mi código es 4711", "mi código es 4711"),
        ("épingle ça s’il te plaît : la carte", "la carte"),
        ("Ricorda questo per sempre: la mappa", "la mappa"),
        ("lembra-te disto para sempre: o mapa", "o mapa"),
        ("onthoud dit voor altijd: de kaart", "de kaart"),
        ("przypnij to: mapa", "mapa"),
        ("запомни, что мой код 4711", "мой код 4711"),
        ("bunu sonsuza kadar hatırla: harita", "harita"),
        ("これをピン留めして：地図", "地図"),
        ("이거 고정해줘: 지도", "지도"),
        ("请永远记住：地图", "地图"),
        ("ปักหมุดไว้: แผนที่", "แผนที่"),
        ("save this", None),
        ("save that seat for me", None),
        ("remember that time in Porto", None),
        ("remember that my code is what?", None),
        ("Remember, what did I say?", None),
        ("Don't save this: it is wrong", None),
        ("He will save that: a promise", None),
        ("keep it, I don't need it", None),
    ],
)
def test_what_follows_a_request_to_save_is_pinned(text: str, pinned: str | None) -> None:
    """In the languages that there are files for."""
    assert text_to_pin(text) == pinned


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_words_for_it(language: str) -> None:
    """Before a colon, in capitals or not, with what may follow them."""
    assert LANGUAGES[language].pins
    for pin in LANGUAGES[language].pins:
        asked = " ".join(word.strip("/").split("/")[0] for word in pin.split()).capitalize()
        if asked.endswith("…"):
            assert text_to_pin(f"{asked[:-1]} Ana") == "Ana"
            continue
        for ending in ("", *LANGUAGES[language].pin_endings):
            assert text_to_pin(f"{asked} {ending}: 4711") == "4711"
