"""Who gets how much of the context, and which copy of a sentence stays."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.settings import LAYERS, LayerName
from foremind.llm.prompt.quoted_lines import line
from foremind.llm.prompt.sections import section
from foremind.llm.prompt.token_budget import SHARES, BudgetShare, share_out
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.text.sentences import said_in

WORDS = ("the ferry leaves at ten", "my sister paints", "boats are old", "we sailed to Madeira")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(
    lambda each: "".join(f"{sentence.capitalize()}. " for sentence in each)
)
NEEDS = st.lists(
    st.tuples(st.sampled_from(tuple(SHARES)), st.lists(TEXTS, max_size=6), st.booleans()),
    max_size=12,
)


def portion(layer: LayerName, texts: list[str], by_hand: bool = False) -> BudgetShare:
    """A layer that has texts to tell."""
    lines = [line(("- told: ", text), by_hand=by_hand) for text in texts]
    return BudgetShare(section(layer, lines, estimate_tokens))


def told(*portions: BudgetShare) -> list[str]:
    """What a prompt shows of them."""
    return [text for portion in portions for text in portion.shown().lines]


def share(portions: list[BudgetShare], tokens: int, said: str = "") -> int:
    """Share tokens out; return those taken."""
    return share_out(portions, tokens, said_in(said), estimate_tokens)


def test_what_a_line_says_twice_it_says_once() -> None:
    """As a careless model writes it, in whatever case; what is short may stand again."""
    text = "Oh yes! The ferry leaves at ten. My sister paints. the ferry leaves at ten | Oh yes!"
    told = '- "Oh yes! The ferry leaves at ten. My sister paints. Oh yes!"'
    assert line(("- ", text)).text() == told
    once = "The ferry leaves at ten. My sister paints."
    assert line(("- ", f"{once} The ferry leaves at ten.")).text() == f'- "{once}"'


def test_the_shares_make_a_whole() -> None:
    """Of every layer but the working window, which takes of the rest."""
    assert set(SHARES) == set(LAYERS) - {"working"}
    assert abs(sum(SHARES.values()) - 1) < 1e-9


@given(NEEDS, st.integers(0, 600), st.sampled_from((*WORDS, "")))
def test_every_sentence_stands_once_within_the_tokens(
    needs: list[tuple[LayerName, list[str], bool]], tokens: int, said: str
) -> None:
    """Whoever holds it; and what the talk says in no layer."""
    portions = [portion(*need) for need in needs]
    assert share(portions, tokens, said) <= tokens
    text = "\n".join(told(*portions)).lower()
    for each in WORDS:
        within_one = max((line.lower().count(each) for line in told(*portions)), default=0)
        assert text.count(each) == within_one  # a line as somebody wrote it is not changed
        assert each != said or each not in text
    if tokens >= 600:
        asked = {each for _, texts, _ in needs for text in texts for each in WORDS
                 if each in text.lower()}  # fmt: skip
        assert all(each in text for each in asked - {said})


def test_a_sentence_that_was_cut_off_in_one_layer_stands_in_another() -> None:
    """Only what is shown counts as standing."""
    profile = portion("profile", ["x" * 600, WORDS[0]])
    memories = portion("memories", [WORDS[0]])
    share([profile, memories], 110)
    assert told(memories) == [f'- told: "{WORDS[0]}"']


def test_lines_are_cut_where_a_sentence_ends() -> None:
    """Nothing is all or nothing; of a first sentence without room some words are told."""
    long = portion("episodes", ["We sailed for days. " + "The wind was kind to us. " * 30])
    share([long], 60)
    (line,) = told(long)
    assert line.startswith('- told: "We sailed for days. The wind')
    assert line.endswith('kind to us."')
    endless = portion("topics", ["boats and " * 200])
    share([endless], 60)
    (line,) = told(endless)
    assert line.endswith('and…"') or line.endswith('boats…"')


def test_a_line_that_was_cut_is_whole_where_others_leave_room() -> None:
    """Its own share is not all that it may have."""
    episodes = portion("episodes", ["We sailed for days. " * 10 + "The end was near."])
    assert share([episodes], 200) > 200 * SHARES["episodes"]
    assert told(episodes)[0].endswith('The end was near."')


def test_what_somebody_wrote_by_hand_comes_first_and_whole() -> None:
    """Beyond the share of its layer, before everything else."""
    hot = portion("hot", [f"Number {number} was written by hand." for number in range(20)], True)
    profile = portion("profile", [f"Fact {number} was made by rules." for number in range(20)])
    share([profile, hot], 350)
    assert len(told(hot)) == 20
    assert 0 < len(told(profile)) < 20


@given(st.integers(0, 800))
def test_every_layer_has_its_own_share(tokens: int) -> None:
    """However much the others want, but what somebody wrote, which comes first."""
    texts = [f"This is sentence number {number}." for number in range(40)]
    alone = portion("topics", texts)
    most = int(tokens * SHARES["topics"])
    share([alone], most)
    made = [layer for layer in SHARES if layer not in ("behaviours", "state")]
    crowded = [portion(layer, [f"{layer} {text}" for text in texts]) for layer in made]
    share(crowded, tokens)
    topics = next(each for each in crowded if each.section.layer == "topics")
    assert len(told(topics)) >= len(told(alone)) // 2


def test_what_is_left_over_goes_to_what_matters_most() -> None:
    """The profile before episodes."""
    texts = [f"This is a sentence of some length, number {number}." for number in range(10)]
    episodes = portion("episodes", [f"Once: {text}" for text in texts])
    profile = portion("profile", [f"I said, {text}" for text in texts])
    share([episodes, profile], 350)
    assert len(told(profile)) == 10
    assert 0 < len(told(episodes)) < 10
