"""How people type: intervals between keys, drawn as recorded typing has them.

The two typists are log-normal fits to recordings of the 136M Keystrokes study (Dhakal et al.,
CHI 2018, doi 10.1145/3173574.3174220): one types fluently, one hesitates, mostly between words.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

ENTER_AFTER_S = (0.15, 0.30)  # between the last letter and Enter
_LONGEST_S = 4.0


@dataclass(frozen=True)
class Typist:
    """Intervals are exp(normal(mu, sigma)) milliseconds; pauses interrupt with given shares."""

    name: str
    mu: float
    sigma: float
    pause_in_word: float
    pause_after_word: float
    pause_mu: float = math.log(780)
    pause_sigma: float = 0.35
    corrections: float = 0.08  # share of letters that are mistyped and taken back

    def interval(self, randomness: random.Random, after_space: bool) -> float:
        """Draw the seconds until the next key."""
        share = self.pause_after_word if after_space else self.pause_in_word
        if randomness.random() < share:
            drawn = randomness.lognormvariate(self.pause_mu, self.pause_sigma)
        else:
            drawn = randomness.lognormvariate(self.mu, self.sigma)
        return min(_LONGEST_S, drawn / 1000)

    def type(self, text: str, randomness: random.Random) -> Iterator[tuple[float, str]]:
        """Yield the seconds to wait and the draft after each key, slips and corrections too."""
        draft = ""
        for letter in text:
            after_space = draft.endswith(" ")
            if randomness.random() < self.corrections:
                yield self.interval(randomness, after_space), draft + "x"
                yield self.interval(randomness, False), draft
            draft += letter
            yield self.interval(randomness, after_space), draft


TYPISTS = (
    Typist("fluent", mu=5.0, sigma=0.45, pause_in_word=0.02, pause_after_word=0.0),
    Typist("hesitant", mu=5.12, sigma=0.40, pause_in_word=0.11, pause_after_word=0.53),
)
