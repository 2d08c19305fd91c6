"""Write a small language model with random weights, to benchmark model servers offline.

    python -m loadtests.warm.make_model model.gguf

Its text is nonsense, at the speed of a real model of its size: 8 layers of width 512 by default.
Its vocabulary is byte-pair encoding trained on this repository's documents. Needs `gguf` and
`tokenizers` (see requirements.txt in this folder).
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).parents[2]
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WEIGHT_STD = 0.02


def main() -> None:
    """Write the model file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--context", type=int, default=8192)
    options = parser.parse_args()
    write(options.path, options.layers, options.width, options.context)


def write(path: Path, layers: int, width: int, context: int) -> None:
    """Write a model of the llama architecture with 16-bit weights and eight attention heads."""
    words, merges = _vocabulary(_train_tokenizer())
    inner_width = 4 * width
    writer = gguf.GGUFWriter(str(path), "llama")
    _add_metadata(writer, layers, width, inner_width, context)
    _add_tokenizer(writer, words, merges)
    _add_tensors(writer, len(words), layers, width, inner_width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_metadata(
    writer: gguf.GGUFWriter, layers: int, width: int, inner_width: int, context: int
) -> None:
    heads = 8
    writer.add_name("random")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner_width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _add_tokenizer(writer: gguf.GGUFWriter, words: list[str], merges: list[str]) -> None:
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(words)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if word in _SPECIAL else normal for word in words])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(words.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)


def _add_tensors(
    writer: gguf.GGUFWriter, vocabulary_size: int, layers: int, width: int, inner_width: int
) -> None:
    rng = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> None:
        weights = rng.standard_normal(shape, dtype=np.float32) * _WEIGHT_STD
        writer.add_tensor(name, weights.astype(np.float16))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(width, np.float32))

    tensor("token_embd.weight", vocabulary_size, width)
    for layer in range(layers):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"{block}.{part}.weight", width, width)
        ones(f"{block}.ffn_norm.weight")
        tensor(f"{block}.ffn_gate.weight", inner_width, width)
        tensor(f"{block}.ffn_up.weight", inner_width, width)
        tensor(f"{block}.ffn_down.weight", width, inner_width)
    ones("output_norm.weight")
    tensor("output.weight", vocabulary_size, width)


def _train_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=6000,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("server/**/*.py")]
    tokenizer.train([str(path) for path in paths], trainer)
    return tokenizer


def _vocabulary(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Return the tokens by id, and the merges."""
    model = json.loads(tokenizer.to_str())["model"]
    words = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return words, merges


if __name__ == "__main__":
    main()
