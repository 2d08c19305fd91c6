"""Text to search terms."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.text.tokenization import MAX_CHARS, count_terms, terms_of


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


def test_other_languages_and_numbers_are_unchanged() -> None:
    """Only English is stemmed."""
    assert terms_of("Привет мир 42") == ["привет", "мир", "42"]


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
