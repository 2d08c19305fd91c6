"""Text to search terms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.text.tokenization import MAX_CHARS, count_terms, query_terms_of, terms_of


def test_stop_words_are_removed_and_words_are_stemmed() -> None:
    """Question words and endings do not prevent a match of question and answer."""
    assert terms_of("Where did you go camping with the families?") == ["go", "camp", "famili"]


def test_forms_of_a_word_have_one_stem() -> None:
    """Questions and answers use different forms."""
    assert terms_of("painted") == terms_of("Paintings'")[:1] == terms_of("paint")


def test_apostrophes_of_every_kind_are_equal() -> None:
    """Phones type the curly one."""
    assert terms_of("my sister’s boat") == terms_of("my sister's boat") == ["sister", "boat"]
    assert terms_of("I don’t") == terms_of("I don't") == []


def test_languages_without_a_file_and_numbers_are_unchanged() -> None:
    """Nothing is known of their words."""
    assert terms_of("Καλημέρα κόσμε 42") == ["καλημέρα", "κόσμε", "42"]


@pytest.mark.parametrize(
    ("memory", "question", "term"),
    [
        ("Meine Katzen heißen Mia und Leo", "Wie heißt meine Katze?", "katz"),
        ("J'ai peur de l'orage", "de quoi ai-je peur, des orages ?", "orag"),
        ("Mis hermanas viven en Bilbao", "¿Dónde vive mi hermana?", "herman"),
        ("Мои собаки любят снег", "что любит моя собака?", "собак"),
        ("犬を飼っています", "私の犬の名前は何ですか", "犬"),
        ("趣味は写真です", "写真を撮りますか", "写真"),
        ("我养了一只狗", "我的狗叫什么名字", "狗"),
        ("강아지를 키워요", "제 강아지의 이름이 뭐예요?", "강아"),
        ("개를 키워요", "제 개는 몇 살이에요?", "개"),
        ("ฉันเลี้ยงแมว", "แมวชื่ออะไร", "แม"),
    ],
)
def test_a_question_shares_terms_with_its_answer(memory: str, question: str, term: str) -> None:
    """Whatever its words' endings are, and whether white space separates them."""
    assert term in count_terms(memory)
    assert term in terms_of(question)


@pytest.mark.parametrize(
    ("memory", "question", "term"),
    [
        ("Papa war Fernfahrer und nie zu Hause", "Welchen Beruf hatte mein Vater?", "≈vater"),
        ("Me crié en un pueblo de Asturias", "¿Dónde pasé mi infancia?", "≈infancia"),
        ("お母さんは横浜に住んでいます", "母はどこに住んでいますか", "≈母"),
        ("우리 아빠는 부산에 살아요", "제 아버지는 어디에 사세요?", "≈아버지"),
    ],
)
def test_synonyms_are_found_by_each_other(memory: str, question: str, term: str) -> None:
    """A question in other words than its answer shares the set of synonyms with it."""
    assert count_terms(memory)[term] == 1
    assert query_terms_of(question).count(term) == 1
    assert term not in terms_of(question)


def test_a_name_alone_finds_a_memory_in_another_language() -> None:
    """A single word does not tell its language and is stemmed as English."""
    assert terms_of("Carlos?")[0] in count_terms("Mi hermano se llama Carlos y vive en Bilbao")


@pytest.mark.parametrize("text", ["das ist von mir", "elle est avec moi", "それ", "我的", "나는"])
def test_stop_words_of_other_languages_are_no_terms(text: str) -> None:
    """They are in every text."""
    assert terms_of(text) == []


@given(st.text())
def test_terms_fit_the_store(text: str) -> None:
    """Every term is short and counted at least once."""
    for term, count in count_terms(text).items():
        assert 0 < len(term) <= 130
        assert 1 <= count <= 32_767


@given(st.lists(st.sampled_from(["zander", "I'm", "Ω", "a" * 70, "x-y", "42"]), min_size=1))
def test_a_long_text_has_the_terms_of_its_parts(words: list[str]) -> None:
    """No chunk boundary cuts a word."""
    part = " ".join(words)
    count = 3 * MAX_CHARS // len(part) + 1
    assert terms_of("\n".join([part] * count)) == terms_of(part) * count


def test_a_long_text_without_white_space_is_tokenized() -> None:
    """As some languages are written."""
    assert terms_of("зонт。" * MAX_CHARS).count("зонт") > MAX_CHARS - 10


def test_no_more_of_a_reply_is_indexed_than_of_two_messages() -> None:
    """However many distinct words a model generates."""
    text = " ".join(f"word{number}" for number in range(100_000))
    assert 0 < len(count_terms(text)) <= 2 * MAX_CHARS / len("word1 ")
