"""A BERT encoder with random weights, in the layout of a Hugging Face model folder.

For dimensions that tests cannot download a model for.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_UNIGRAM_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_SPACE = "\u2581"
_WORDS = (
    "the weather was lovely today so interest rates rose by a quarter , . ! ? rain boat harbour "
    "sister garden name is my your what i you love"
)


def write_random_model(
    folder: Path,
    *,
    dimension: int,
    layers: int = 2,
    heads: int = 12,
    cls: bool = True,
    unigrams: int = 0,
) -> None:
    """Write configuration, tokenizer, weights and pooling of a random encoder to `folder`.

    Args:
        unigrams: how many tokens it knows, if it is to have a tokenizer as multilingual models do.
    """
    rng = np.random.default_rng(7)
    vocabulary = _unigrams(unigrams) if unigrams else _word_pieces()
    inner = dimension * (4 if unigrams else 2)

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.05).astype(np.float32)

    tensors = {
        "embeddings.word_embeddings.weight": matrix(len(vocabulary), dimension) * 20,
        "embeddings.position_embeddings.weight": matrix(128, dimension),
        "embeddings.token_type_embeddings.weight": matrix(2, dimension),
    }
    for name in ["embeddings.LayerNorm"] + [
        f"encoder.layer.{layer}.{part}.LayerNorm"
        for layer in range(layers)
        for part in ("attention.output", "output")
    ]:
        tensors[f"{name}.weight"] = np.ones(dimension, np.float32)
        tensors[f"{name}.bias"] = np.zeros(dimension, np.float32)
    for layer in range(layers):
        for part, shape in {
            "attention.self.query": (dimension, dimension),
            "attention.self.key": (dimension, dimension),
            "attention.self.value": (dimension, dimension),
            "attention.output.dense": (dimension, dimension),
            "intermediate.dense": (inner, dimension),
            "output.dense": (dimension, inner),
        }.items():
            tensors[f"encoder.layer.{layer}.{part}.weight"] = matrix(*shape)
            tensors[f"encoder.layer.{layer}.{part}.bias"] = matrix(shape[0])
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "hidden_size": dimension,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": 128,
        "vocab_size": len(vocabulary),
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": cls}))
    write = _write_unigram_tokenizer if unigrams else _write_tokenizer
    write(folder / "tokenizer.json", vocabulary)


def _word_pieces() -> list[str]:
    vocabulary = [*_SPECIAL, *_WORDS.split(), *map(chr, range(97, 123))]
    vocabulary += [f"##{chr(code)}" for code in range(97, 123)]
    return list(dict.fromkeys(vocabulary))


def _unigrams(size: int) -> list[str]:
    vocabulary = [*_UNIGRAM_SPECIAL, *(f"{_SPACE}{word}" for word in _WORDS.split())]
    vocabulary += [_SPACE, *map(chr, range(97, 123))]
    vocabulary = list(dict.fromkeys(vocabulary))
    return [*vocabulary, *(f"{_SPACE}w{number}" for number in range(size - len(vocabulary)))]


def _write_unigram_tokenizer(path: Path, vocabulary: list[str]) -> None:
    """Write a tokenizer like XLM-R's: unigrams, spaces as letters, no token types."""
    scores = [(token, -float(rank + 1) / 1000) for rank, token in enumerate(vocabulary)]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=vocabulary.index("<unk>")))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(token, vocabulary.index(token)) for token in ("<s>", "</s>")],
    )
    tokenizer.save(str(path))


def _write_tokenizer(path: Path, vocabulary: list[str]) -> None:
    ids = {token: index for index, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=_SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    tokenizer.save(str(path))
