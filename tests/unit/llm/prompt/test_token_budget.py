"""How the token budget is divided, and which copy of a repeated sentence is kept."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foremind.domain.record import NO_DETAILS, Record
from foremind.domain.settings.setting_definitions import LAYERS, LayerName
from foremind.llm.prompt.quoted_lines import line, shortened
from foremind.llm.prompt.sections import Section, section
from foremind.llm.prompt.token_budget import SHARES, BudgetShare, allocate_tokens
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.text.sentences import sentence_keys_in

AT = datetime(2026, 5, 20, 12, tzinfo=UTC)
WORDS = ("the ferry leaves at ten", "my sister paints", "boats are old", "we sailed to Madeira")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(
    lambda sentences: "".join(f"{sentence.capitalize()}. " for sentence in sentences)
)
MANUAL_LAYERS = ("behaviours", "state")  # whose lines are a developer's or a game's
NEEDS = st.lists(
    st.tuples(st.sampled_from(tuple(SHARES)), st.lists(TEXTS, max_size=6), st.booleans()).map(
        lambda need: (need[0], need[1], need[2] or need[0] in MANUAL_LAYERS)
    ),
    max_size=12,
)


def budget_share(layer: LayerName, texts: list[str], is_manual: bool = False) -> BudgetShare:
    """A share for a section of texts."""
    lines = [line(("- told: ", text), is_manual=is_manual) for text in texts]
    return BudgetShare(section(layer, lines, estimate_tokens))


def shown(*shares: BudgetShare) -> list[str]:
    """The lines that a prompt shows of the shares."""
    return [text for share in shares for text in share.shown().lines]


def allocate(shares: list[BudgetShare], tokens: int, said: str = "") -> int:
    """Allocate tokens; return those used."""
    return allocate_tokens(shares, (), tokens, sentence_keys_in(said), estimate_tokens)


def test_repeated_sentences_of_a_line_are_kept_once() -> None:
    """As careless models write them, in any case; short sentences may repeat."""
    text = "Oh yes! The ferry leaves at ten. My sister paints. the ferry leaves at ten | Oh yes!"
    expected = '- "Oh yes! The ferry leaves at ten. My sister paints. Oh yes!"'
    assert line(("- ", text)).text() == expected
    once = "The ferry leaves at ten. My sister paints."
    assert line(("- ", f"{once} The ferry leaves at ten.")).text() == f'- "{once}"'


def test_the_shares_add_up_to_one() -> None:
    """For every layer but the history, which gets the rest."""
    assert set(SHARES) == set(LAYERS) - {"working"}
    assert abs(sum(SHARES.values()) - 1) < 1e-9


@given(NEEDS, st.integers(0, 600), st.sampled_from((*WORDS, "")))
@example(  # truncated, the second line of the vault would say only what its first one says
    [
        ("vault", ["We sailed to Madeira. Boats are old. My sister paints. ", "Boats are old. " * 2,
                   "We sailed to Madeira. " * 2], True),
        ("opening", ["My sister paints. "] * 3, True),
        ("behaviours", ["We sailed to Madeira. " * 3], True),
    ],
    85,
    "",
)  # fmt: skip
def test_every_sentence_appears_once_within_the_budget(
    needs: list[tuple[LayerName, list[str], bool]], tokens: int, said: str
) -> None:
    """In whichever layer; those of the history in none. Only manual lines repeat sentences."""
    shares = [budget_share(*need) for need in needs]
    assert allocate(shares, tokens, said) <= tokens
    lines = {
        manual: [
            line.lower()
            for share, (_, _, is_manual) in zip(shares, needs, strict=True)
            for line in share.shown().lines
            if is_manual is manual
        ]
        for manual in (True, False)
    }
    manual, generated = "\n".join(lines[True]), "\n".join(lines[False])
    for sentence in WORDS:
        within_line = max((line.count(sentence) for line in lines[False]), default=0)
        assert generated.count(sentence) == within_line
        assert sentence not in generated or (sentence != said and sentence not in manual)
    assert len(lines[True]) == len(set(lines[True]))
    if tokens >= 600:
        given = {sentence for _, texts, _ in needs for text in texts for sentence in WORDS
                 if sentence in text.lower()}  # fmt: skip
        assert all(sentence in manual + generated for sentence in given - {said})


def test_a_sentence_truncated_in_one_layer_is_shown_in_another() -> None:
    """Only sentences that are shown count as present."""
    profile = budget_share("profile", ["x" * 600, WORDS[0]])
    memories = budget_share("memories", [WORDS[0]])
    allocate([profile, memories], 110)
    assert shown(memories) == [f'- told: "{WORDS[0]}"']


def test_lines_are_truncated_at_sentence_ends() -> None:
    """If not even the first sentence fits, it is truncated at a word."""
    long = budget_share("episodes", ["We sailed for days. " + "The wind was kind to us. " * 30])
    allocate([long], 60)
    (line,) = shown(long)
    assert line.startswith('- told: "We sailed for days. The wind')
    assert line.endswith('kind to us."')
    endless = budget_share("topics", ["boats and " * 200])
    allocate([endless], 60)
    (line,) = shown(endless)
    assert line.endswith('and…"') or line.endswith('boats…"')


def test_the_work_to_truncate_a_line_depends_on_what_fits() -> None:
    """Apart from a few looks at the whole line, not on how long it is."""

    def counted(units: int) -> int:
        quoted_line = line(("- told: ", "boats and " * units), sentences=False)
        chars = 0

        def count(text: str) -> int:
            nonlocal chars
            chars += len(text)
            return estimate_tokens(text)

        assert shortened(quoted_line, 60, count) is not None
        return chars - 2 * len(quoted_line.text())

    assert counted(4000) <= counted(100)


def test_a_truncated_line_is_completed_with_unused_tokens() -> None:
    """A layer may exceed its own share."""
    episodes = budget_share("episodes", ["We sailed for days. " * 10 + "The end was near."])
    assert allocate([episodes], 200) > 200 * SHARES["episodes"]
    assert shown(episodes)[0].endswith('The end was near."')


def test_manual_lines_come_first_and_complete() -> None:
    """Beyond the share of their layer, before everything else."""
    hot = budget_share(
        "hot", [f"Number {number} was written by hand." for number in range(20)], True
    )
    profile = budget_share("profile", [f"Fact {number} was made by rules." for number in range(20)])
    allocate([profile, hot], 350)
    assert len(shown(hot)) == 20
    assert 0 < len(shown(profile)) < 20


@given(st.integers(0, 800))
def test_every_layer_has_its_own_share(tokens: int) -> None:
    """However much the others need, except for manual lines, which come first."""
    texts = [f"This is sentence number {number}." for number in range(40)]
    alone = budget_share("topics", texts)
    limit = int(tokens * SHARES["topics"])
    allocate([alone], limit)
    layers = [layer for layer in SHARES if layer not in ("behaviours", "state")]
    crowded = [budget_share(layer, [f"{layer} {text}" for text in texts]) for layer in layers]
    allocate(crowded, tokens)
    topics = next(share for share in crowded if share.section.layer == "topics")
    assert len(shown(topics)) >= len(shown(alone)) // 2


def test_unused_tokens_go_to_the_most_important_layers() -> None:
    """The profile before episodes."""
    texts = [f"This is a sentence of some length, number {number}." for number in range(10)]
    episodes = budget_share("episodes", [f"Once: {text}" for text in texts])
    profile = budget_share("profile", [f"I said, {text}" for text in texts])
    allocate([episodes, profile], 350)
    assert len(shown(profile)) == 10
    assert 0 < len(shown(episodes)) < 10


def notes(first: int, number: int) -> Section:
    """Notes of some records."""
    records = [
        Record(
            id_, "scratchpad", "event", "", f"Boat {id_}", (), NO_DETAILS, None, "rules", None,
            AT, AT, 1,
        )
        for id_ in range(first, first + number)
    ]  # fmt: skip
    lines = [line(("- event: ", note.content)) for note in records]
    return section("scratchpad", lines, estimate_tokens, records)


@pytest.mark.parametrize(("tokens", "standing_notes"), [(2000, 120), (700, 6)])
def test_standing_notes_have_their_share_and_recalled_ones_what_is_left(
    tokens: int, standing_notes: int
) -> None:
    """So that the beginning of a prompt does not depend on the draft. None is shown twice."""
    standing = BudgetShare(notes(0, 120))
    profile = budget_share("profile", ["This is a sentence of some length."])
    recalled = BudgetShare(notes(3, 6), standing=standing)
    allocate_tokens([profile, standing], [recalled], tokens, frozenset(), estimate_tokens)
    assert len(standing.shown().lines) == pytest.approx(standing_notes, abs=2)
    assert standing.shown().lines[0] == '- event: "Boat 0"'
    both = [*standing.shown().records, *recalled.shown().records]
    assert len(both) == len(set(both))
    assert set(range(9)) <= set(both)
    assert recalled.numbers() == list(range(6))  # their content is in the prompt, here or there
