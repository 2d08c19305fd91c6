"""How likely letters are a whole word, by a vocabulary that lists frequent words first."""

import pytest

from foremind_models import ConvertedEncoder
from foremind_models.encoder import WordShares


def shares(*tokens: str) -> WordShares:
    """Return the shares by a vocabulary of these tokens, frequent ones first."""
    return WordShares({token: number for number, token in enumerate(tokens)})


def test_a_frequent_word_is_rarely_the_beginning_of_another() -> None:
    """Of two words that begin alike, the frequent one has the greater share."""
    frequent, rare = shares("her", "hers", "herd"), shares("hers", "herd", "her")
    assert (frequent.share("her") or 0.0) > 1 / 3 > (rare.share("her") or 1.0) > 0.0


def test_the_share_of_what_continues_into_no_other_word_is_all() -> None:
    """However rare the word is."""
    assert shares("the", "there", "harbour").share("harbour") == 1.0


def test_the_beginning_of_a_word_has_no_share_and_the_beginning_of_none_is_unknown() -> None:
    """A misspelling and a rare name begin no known word."""
    words = shares("harbour", "house")
    assert words.share("harb") == 0.0
    assert words.share("harbx") is None


def test_case_makes_no_difference() -> None:
    """Players write names and beginnings of sentences in capitals or not."""
    assert shares("Faro", "farm").share("FARO") == shares("faro", "farm").share("faro") == 1.0


@pytest.mark.parametrize(
    "tokens",
    [
        ("[PAD]", "h", "house", "##boat", "42", "houseboat"),
        ("\u2581house", "boat", "\u2581houseboat"),
    ],
)
def test_only_tokens_that_start_a_word_count(tokens: tuple[str, ...]) -> None:
    """In WordPiece and SentencePiece; control tokens and numbers are no words."""
    words = shares(*tokens)
    assert words.share("boat") is None and words.share("42") is None and words.share("PAD") is None
    assert 0.5 < (words.share("house") or 0.0) < 1.0


def test_single_letters_are_rarely_a_whole_word() -> None:
    """Vocabularies list them before all words, although most are none."""
    assert (shares("h", "i", "house", "it").share("h") or 1.0) < 0.01


def test_a_real_vocabulary_tells_words_from_beginnings(model: ConvertedEncoder) -> None:
    """Whole words are in it, and so are most beginnings, which hardly ever end there."""
    encoder = model.encoder()
    for word in ("here", "Company", "sister", "me", "thunder", "today"):
        assert (encoder.word_share(word) or 0.0) > 0.1
    for beginning in ("comp", "th", "sist", "wedd", "h"):
        assert (encoder.word_share(beginning) or 0.0) < 0.01
    assert encoder.word_share("hrex") is None
