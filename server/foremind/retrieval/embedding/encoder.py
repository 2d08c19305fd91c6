"""Encodes texts as unit vectors with a tokenizer and an ONNX Runtime session. Blocking."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from tokenizers import Tokenizer

from foremind.domain.errors import Interrupted
from foremind.retrieval.embedding.pooling import EMBEDDING
from foremind.retrieval.embedding.word_shares import WordShares

Vectors = npt.NDArray[np.float32]


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

    def encode(self, texts: Sequence[str], stop: "CancelFlag | None" = None) -> Vectors:
        """Return unit vectors, float32 [len(texts), dimension].

        Texts are not batched: int8 scales are computed over the batch, so that a text's vector
        would depend on the others (measured: cosine to fp32 falls from 0.98 to 0.97).

        Raises:
            Interrupted: `stop` was set.
        """
        stop = stop or CancelFlag()
        try:
            return np.concatenate([self._encode_one(text, stop.run) for text in texts])
        except Exception as error:
            if stop.is_set:
                raise Interrupted("Interrupted for a more urgent text.") from error
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
