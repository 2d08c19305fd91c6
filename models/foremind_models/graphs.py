"""Builds the ONNX graph of a BERT encoder from its safetensors, without PyTorch, and its pooling.

The architecture is that of Devlin et al. 2018 (arXiv 1810.04805), with the tensor names of the
published checkpoints: post-layer-norm blocks, absolute positions, exact GELU.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from foremind_models.encoder import EMBEDDING
from foremind_models.manifest import ModelUnusable

OPSET = 20  # the first that has Gelu
IR_VERSION = 10
HIDDEN = "last_hidden_state"


def build_bert(weights: Path, config: dict[str, Any]) -> onnx.ModelProto:
    """Return a graph from `input_ids` and `attention_mask`, int64 [batch, tokens], to
    `last_hidden_state`, float32 [batch, tokens, hidden].

    Raises:
        ModelUnusable: a tensor is missing, or the configuration is not plain BERT.
    """
    if config.get("hidden_act", "gelu") != "gelu":
        raise ModelUnusable(f"hidden_act: expected 'gelu', got {config['hidden_act']!r}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ModelUnusable("position_embedding_type: expected 'absolute'")
    writer = _GraphWriter(_tensors(weights), float(config.get("layer_norm_eps", 1e-12)))
    hidden = writer.embeddings()
    bias = writer.attention_bias()
    heads = int(config["num_attention_heads"])
    size = int(config["hidden_size"])
    for layer in range(int(config["num_hidden_layers"])):
        hidden = writer.layer(f"encoder.layer.{layer}", hidden, bias, heads, size // heads)
    writer.node("Identity", [hidden], HIDDEN)
    dynamic = ["batch", "tokens"]
    graph = helper.make_graph(
        writer.nodes,
        "bert",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, dynamic)
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info(HIDDEN, TensorProto.FLOAT, [*dynamic, size])],
        writer.initializers,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def _tensors(weights: Path) -> dict[str, npt.NDArray[Any]]:
    """Load tensors by name, without the `bert.` prefix of some checkpoints."""
    return {name.removeprefix("bert."): value for name, value in load_file(weights).items()}


class _GraphWriter:
    """Collects nodes and initializers; every method returns the name of its output value."""

    def __init__(self, tensors: dict[str, npt.NDArray[Any]], epsilon: float) -> None:
        self._tensors = tensors
        self._epsilon = epsilon
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, operator: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        if name not in self._tensors:
            raise ModelUnusable(f"The weights have no tensor {name!r}; is this a BERT encoder?")
        value = self._tensors[name].astype(np.float32)
        return self.constant(name, value.T if transposed else value)

    def linear(self, name: str, value: str) -> str:
        product = self.node("MatMul", [value, self.weight(f"{name}.weight", transposed=True)])
        return self.node("Add", [product, self.weight(f"{name}.bias")])

    def layer_norm(self, name: str, value: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", [value, scale, bias], axis=-1, epsilon=self._epsilon)

    def embeddings(self) -> str:
        words = self.node("Gather", [self.weight("embeddings.word_embeddings.weight"), "input_ids"])
        # There is one token type: add it to the position table, and slice that to length.
        positions = self._tensors["embeddings.position_embeddings.weight"]
        types = self._tensors["embeddings.token_type_embeddings.weight"]
        table = self.constant("positions", (positions + types[0]).astype(np.float32))
        length = self.node("Shape", ["input_ids"], start=1, end=2)
        zero = self.constant("zero", np.array([0], np.int64))
        sliced = self.node("Slice", [table, zero, length, zero])
        return self.layer_norm("embeddings.LayerNorm", self.node("Add", [words, sliced]))

    def attention_bias(self) -> str:
        """0 for real tokens, a large negative number for padding."""
        mask = self.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        axes = self.constant("head_and_query_axes", np.array([1, 2], np.int64))
        wide = self.node("Unsqueeze", [mask, axes])
        one = self.constant("one", np.array(1.0, np.float32))
        hidden = self.node("Sub", [one, wide])
        return self.node("Mul", [hidden, self.constant("masked", np.array(-1e4, np.float32))])

    def layer(self, name: str, hidden: str, bias: str, heads: int, width: int) -> str:
        attended = self.attention(f"{name}.attention", hidden, bias, heads, width)
        hidden = self.layer_norm(
            f"{name}.attention.output.LayerNorm", self.node("Add", [attended, hidden])
        )
        expanded = self.node("Gelu", [self.linear(f"{name}.intermediate.dense", hidden)])
        projected = self.linear(f"{name}.output.dense", expanded)
        return self.layer_norm(f"{name}.output.LayerNorm", self.node("Add", [projected, hidden]))

    def attention(self, name: str, hidden: str, bias: str, heads: int, width: int) -> str:
        split = self.constant(f"{name}.split", np.array([0, 0, heads, width], np.int64))

        def by_head(part: str, order: list[int]) -> str:
            value = self.linear(f"{name}.self.{part}", hidden)
            return self.node("Transpose", [self.node("Reshape", [value, split])], perm=order)

        query, key = by_head("query", [0, 2, 1, 3]), by_head("key", [0, 2, 3, 1])
        scale = self.constant(f"{name}.scale", np.array(width**-0.5, np.float32))
        scores = self.node("Mul", [self.node("MatMul", [query, key]), scale])
        weights = self.node("Softmax", [self.node("Add", [scores, bias])], axis=-1)
        context = self.node("MatMul", [weights, by_head("value", [0, 2, 1, 3])])
        joined = self.constant(f"{name}.join", np.array([0, 0, heads * width], np.int64))
        flat = self.node("Reshape", [self.node("Transpose", [context], perm=[0, 2, 1, 3]), joined])
        return self.linear(f"{name}.output.dense", flat)


def append_pooling(
    model: onnx.ModelProto, pooling: Literal["mean", "cls"], dimension: int
) -> onnx.ModelProto:
    """Replace the outputs of `model` with `embedding`, unit vectors, float32 [batch, dimension].

    The first output must be the token vectors, float32 [batch, tokens, dimension]; `mean`
    averages over the tokens that `attention_mask` selects, `cls` takes the first.
    """
    graph = model.graph
    token_vectors = graph.output[0]
    if len(token_vectors.type.tensor_type.shape.dim) != 3:
        raise ModelUnusable(
            f"output {token_vectors.name!r}: expected token vectors [batch, tokens, dimension]"
        )
    hidden = token_vectors.name
    graph.node.extend(_cls(graph, hidden) if pooling == "cls" else _mean(graph, hidden))
    # LpNormalization has no epsilon, and needs none: a layer norm never outputs all zeros.
    graph.node.append(helper.make_node("LpNormalization", ["pooled"], [EMBEDDING], axis=1, p=2))
    del graph.output[:]
    graph.output.append(
        helper.make_tensor_value_info(EMBEDDING, TensorProto.FLOAT, ["batch", dimension])
    )
    return model


def _cls(graph: onnx.GraphProto, hidden: str) -> list[onnx.NodeProto]:
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "first_token"))
    return [helper.make_node("Gather", [hidden, "first_token"], ["pooled"], axis=1)]


def _mean(graph: onnx.GraphProto, hidden: str) -> list[onnx.NodeProto]:
    graph.initializer.extend(
        [
            numpy_helper.from_array(np.array([-1], np.int64), "last_axis"),
            numpy_helper.from_array(np.array([1], np.int64), "token_axis"),
        ]
    )
    make = helper.make_node
    return [
        make("Cast", ["attention_mask"], ["kept"], to=TensorProto.FLOAT),
        make("Unsqueeze", ["kept", "last_axis"], ["kept_wide"]),
        make("Mul", [hidden, "kept_wide"], ["kept_vectors"]),
        make("ReduceSum", ["kept_vectors", "token_axis"], ["vector_sum"], keepdims=0),
        make("ReduceSum", ["kept_wide", "token_axis"], ["kept_count"], keepdims=0),
        make("Div", ["vector_sum", "kept_count"], ["pooled"]),
    ]
