"""Appends pooling and normalisation to an encoder graph, which then outputs a unit vector."""

from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from foremind.domain.errors import ModelUnusable

EMBEDDING = "embedding"


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
