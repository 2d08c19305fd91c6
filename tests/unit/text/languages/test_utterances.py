"""Questions, statements and fillers in other languages than English."""

import pytest

from foremind.text.languages.utterances import (
    has_content,
    is_about_speaker,
    is_pure_question,
    states,
)

_QUESTIONS = (
    "Wie heißt mein Hund?",
    "wo wohnt meine Schwester",
    "Hallo! Wie heißt mein Hund?",
    "Comment s'appelle mon chat ?",
    "où habite ma sœur",
    "¿Cómo se llama mi perro",
    "dónde vive mi hermana",
    "Qual é o nome do meu cachorro?",
    "dov'è nata mia sorella",
    "waar woont mijn zus",
    "gdzie mieszka moja siostra",
    "как зовут мою собаку",
    "kız kardeşim nerede yaşıyor?",
    "私の犬の名前は何ですか",
    "妹はどこに住んでいますか。",
    "私の犬の名前は？",
    "我的狗叫什么名字",
    "你记得我的狗吗",
    "我的狗呢？",
    "제 강아지 이름이 뭐예요?",
    "내 여동생은 어디 살아",
    "부산에 사나요",
    "แมวของฉันชื่ออะไร",
)
_STATEMENTS = (
    "Mein Hund heißt Bello.",
    "Wie gesagt, ich wohne in Porto.",
    "Ich wohne in Porto. Und du?",
    "Quand j'étais petit, j'habitais à Lyon",
    "Cuando era niña vivía en Bilbao",
    "Quando ero piccolo vivevo a Roma",
    "Trabalho como enfermeira em Lisboa",
    "Mijn zus woont in Gent",
    "Moja siostra mieszka w Krakowie",
    "Мою собаку зовут Шарик",
    "Kız kardeşim İzmir'de yaşıyor, ben Ankara'da",
    "私の犬の名前はポチです",
    "いつも朝はコーヒーを飲みます",
    "いつかアイスランドでオーロラを見たいな",
    "犬を飼っています。",
    "我养了一只狗",
    "我什么都吃",
    "제 강아지 이름은 초코예요",
    "부산에서 태어났어요",
    "ฉันมีแมวสองตัว",
)
_FILLERS = (
    "Ja, genau!",
    "Danke schön",
    "Merci beaucoup !",
    "¡Muchas gracias!",
    "Sì, va bene",
    "Да, спасибо!",
    "そうですね、なるほど。",
    "ありがとうございます！",
    "好的，谢谢！",
    "네, 감사합니다!",
)


@pytest.mark.parametrize("text", _QUESTIONS)
def test_questions_state_nothing(text: str) -> None:
    """With or without a question mark, which many languages do not need."""
    assert is_pure_question(text)
    assert not states(text)
    assert has_content(text)


@pytest.mark.parametrize("text", _STATEMENTS)
def test_statements_are_no_questions(text: str) -> None:
    """Even if they begin with a word that also asks, or end in a question."""
    assert states(text)
    assert not is_pure_question(text)
    assert has_content(text)


@pytest.mark.parametrize("text", _FILLERS)
def test_fillers_have_no_content(text: str) -> None:
    """Greetings, thanks and agreement."""
    assert not has_content(text)
    assert not states(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mein Hund heißt Bello.", True),
        ("Der Hund ist krank.", False),
        ("J'habite à Lyon", True),
        ("私は犬が好きです", True),
        ("그 강아지는 아파요", False),
    ],
)
def test_words_tell_who_a_statement_is_about(text: str, expected: bool) -> None:
    """By the language's words for "I" and "my"."""
    assert is_about_speaker(text) is expected
