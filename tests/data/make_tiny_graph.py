#!/usr/bin/env python3
"""Writes tests/data/graph/mlp.onnx, a classifier of random weights with two
inputs, and mlp.json, what onnxruntime answers.

    python3 tests/data/make_tiny_graph.py

Made with onnx 1.23.2, onnxruntime 1.31.1, numpy 2.4.6.
"""
import json
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OUT = pathlib.Path(__file__).parent / "graph"


def main():
    draw = np.random.default_rng(7)
    w = draw.normal(size=(4, 3)).astype(np.float32)
    b = draw.normal(size=(3,)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["xw"], "product"),
         helper.make_node("Add", ["xw", "b"], ["biased"], "bias"),
         helper.make_node("Mul", ["biased", "scale"], ["logits"], "scaling"),
         helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax",
                          axis=-1)],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4]),
         helper.make_tensor_value_info("scale", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT,
                                       ["batch", 3]),
         helper.make_tensor_value_info("probabilities", TensorProto.FLOAT,
                                       ["batch", 3])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    model = helper.make_model(graph, producer_name="make_tiny_graph",
                              opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    OUT.mkdir(exist_ok=True)
    onnx.save(model, OUT / "mlp.onnx")

    session = onnxruntime.InferenceSession(OUT / "mlp.onnx",
                                           providers=["CPUExecutionProvider"])
    cases = []
    for batch in (1, 3):
        inputs = {"x": draw.normal(size=(batch, 4)).astype(np.float32),
                  "scale": np.array([0.5], np.float32)}
        logits, probabilities = session.run(None, inputs)
        cases.append({key: value.tolist() for key, value in {
            **inputs, "logits": logits, "probabilities": probabilities}.items()})
    (OUT / "mlp.json").write_text(json.dumps(cases, indent=1) + "\n")


main()
