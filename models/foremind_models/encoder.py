"""Encodes texts as unit vectors with a tokenizer and an ONNX Runtime session. Blocking."""

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

# ONNX Runtime queues reports to Microsoft on what it runs on, in the home directory, unless this is
# set before it is imported; its `disable_telemetry_events` comes too late.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import onnxruntime as ort

_MAX_WORDS = 50_000  # the most frequent; bounds what a multilingual vocabulary takes
_RANK_OFFSET = 2.0  # Mandelbrot's correction for the most frequent words
_LETTER_RANK = 1_000  # vocabularies list single letters apart, whatever their frequency
_WORD_START = "\u2581"  # SentencePiece's prefix of a token that starts a word
_LAST = "\U0010ffff"  # sorts after every letter


class WordShares:
    """Says for letters what share of the words that begin with them ends there.

    Judged by the vocabulary of an embedding model, which lists words from frequent to rare. By
    Zipf's law a word's frequency is about the reciprocal of its rank: of all the words that begin
    with "comp", hardly any ends there, although "comp" is in the vocabulary.

    Args:
        vocabulary: a tokenizer's tokens and their ids.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        frequencies: dict[str, float] = {}
        rank = 0
        for word in islice(_words(vocabulary), _MAX_WORDS):
            rank += len(word) > 1
            frequency = 1 / (_RANK_OFFSET + (rank if len(word) > 1 else _LETTER_RANK))
            frequencies.setdefault(word, frequency)
        self._words = sorted(frequencies)
        self._cumulative = array(
            "d", accumulate((frequencies[word] for word in self._words), initial=0.0)
        )

    def share(self, letters: str) -> float | None:
        """Return the share, 0 to 1; None if no known word begins with `letters`."""
        prefix = letters.removeprefix(_WORD_START).casefold()
        first = bisect_left(self._words, prefix)
        end = bisect_left(self._words, prefix + _LAST, first)
        if first == end:
            return None
        if self._words[first] != prefix:
            return 0.0
        cumulative = self._cumulative
        return (cumulative[first + 1] - cumulative[first]) / (cumulative[end] - cumulative[first])


def _words(vocabulary: Mapping[str, int]) -> Iterator[str]:
    """Yield the words of a vocabulary, frequent ones first, in lower case.

    Tokens that continue a word are left out: WordPiece marks these ("##s"), SentencePiece those
    that start one.
    """
    starts_are_marked = any(token.startswith(_WORD_START) for token in vocabulary)
    for token in sorted(vocabulary, key=vocabulary.__getitem__):
        word = token.removeprefix(_WORD_START)
        if word.isalpha() and starts_are_marked == token.startswith(_WORD_START):
            yield word.casefold()


EMBEDDING = "embedding"  #: the output of a converted graph
Vectors = npt.NDArray[np.float32]


class EncodingStopped(Exception):
    """An `encode` call was interrupted."""


class CancelFlag:
    """Interrupts an `encode` call, from any thread, or a request, from the event loop."""

    def __init__(self) -> None:
        self.run = ort.RunOptions()
        self.on_set: Callable[[], None] = lambda: None  #: of a request in progress

    def set(self) -> None:
        """Stop the call before its next graph operation; no effect once it has returned."""
        self.run.terminate = True
        self.on_set()

    @property
    def is_set(self) -> bool:
        """Whether the call was stopped."""
        return bool(self.run.terminate)


class OnnxEncoder:
    """Encodes texts on the calling thread.

    It uses one thread, without spinning: on a server's cores a second thread gains nothing for
    short texts and triples the tail latency.
    """

    def __init__(self, graph: Path, tokenizer: Path, max_tokens: int) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(
            str(graph), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {input_.name for input_ in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        # The published tokenizer files pad every text to a fixed length.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._word_shares = WordShares(self._tokenizer.get_vocab())

    def encode(self, texts: Sequence[str], stop: CancelFlag | None = None) -> Vectors:
        """Return unit vectors, float32 [len(texts), dimension].

        Texts are not batched: int8 scales are computed over the batch, so that a text's vector
        would depend on the others (measured: cosine to fp32 falls from 0.98 to 0.97).

        Raises:
            EncodingStopped: `stop` was set.
        """
        stop = stop or CancelFlag()
        try:
            return np.concatenate([self._encode_one(text, stop.run) for text in texts])
        except Exception as error:
            if stop.is_set:
                raise EncodingStopped from error
            raise

    def _encode_one(self, text: str, run: ort.RunOptions) -> Vectors:
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.zeros_like(ids)
        vectors: Vectors = self._session.run([EMBEDDING], feeds, run)[0]
        return vectors

    def count_tokens(self, text: str) -> int:
        """Return the tokens of `text`, with special ones, at most the model's maximum."""
        return len(self._tokenizer.encode(text).ids)

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""
        normalizer = None if letters.isascii() else self._tokenizer.normalizer
        plain = letters if normalizer is None else normalizer.normalize_str(letters)
        return self._word_shares.share(plain)
