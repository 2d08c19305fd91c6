"""A model of human typing: inter-key intervals drawn from fits to recordings.

The two typists are log-normal fits to recordings of the 136M Keystrokes study (Dhakal et al.,
CHI 2018, doi 10.1145/3173574.3174220): one types fluently, one hesitates, mostly between words.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

ENTER_AFTER_S = (0.15, 0.30)  # between the last letter and Enter
_MAX_INTERVAL_S = 4.0


@dataclass(frozen=True)
class Typist:
    """Intervals are exp(normal(mu, sigma)) milliseconds; pauses occur with given probabilities."""

    name: str
    mu: float
    sigma: float
    pause_in_word: float
    pause_after_word: float
    pause_mu: float = math.log(780)
    pause_sigma: float = 0.35
    corrections: float = 0.08  # share of characters that are mistyped and corrected

    def interval(self, rng: random.Random, after_space: bool) -> float:
        """Draw the seconds until the next key."""
        pause_probability = self.pause_after_word if after_space else self.pause_in_word
        if rng.random() < pause_probability:
            interval_ms = rng.lognormvariate(self.pause_mu, self.pause_sigma)
        else:
            interval_ms = rng.lognormvariate(self.mu, self.sigma)
        return min(_MAX_INTERVAL_S, interval_ms / 1000)

    def type(self, text: str, rng: random.Random) -> Iterator[tuple[float, str]]:
        """Yield the seconds before each key and the draft after it, with typos and corrections."""
        draft = ""
        for char in text:
            after_space = draft.endswith(" ")
            if rng.random() < self.corrections:
                yield self.interval(rng, after_space), draft + "x"
                yield self.interval(rng, False), draft
            draft += char
            yield self.interval(rng, after_space), draft


TYPISTS = (
    Typist("fluent", mu=5.0, sigma=0.45, pause_in_word=0.02, pause_after_word=0.0),
    Typist("hesitant", mu=5.12, sigma=0.40, pause_in_word=0.11, pause_after_word=0.53),
)
