#!/usr/bin/env python3
"""Writes tests/data/graph_quantized: tiny networks of tests/data/graph that ONNX
Runtime's tools quantised (QDQ, QLinear operators, dynamic), and what ONNX Runtime
gives for the same inputs without rewriting them.

    python3 tests/data/make_quantized_graphs.py    (onnxruntime 1.31.1, onnx 1.23.2)
"""
import pathlib
import tempfile

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat,
                                      QuantType, quantize_dynamic,
                                      quantize_static)
from onnxruntime.quantization.shape_inference import quant_pre_process

HERE = pathlib.Path(__file__).parent
FROM = HERE / "graph"
TO = HERE / "graph_quantized"
TAGS = ("b1", "b2", "b3")


def session(path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options,
                                providers=["CPUExecutionProvider"])


def feeds(name, names):
    for tag in TAGS:
        with np.load(FROM / f"{name}.{tag}.npz") as arrays:
            values = [arrays[k] for k in sorted(arrays.files)
                      if k.startswith("in")]
        yield tag, dict(zip(names, values))


class Reader(CalibrationDataReader):
    def __init__(self, name, names):
        self.left = iter(feed for _, feed in feeds(name, names))

    def get_next(self):
        return next(self.left, None)


def make(name, kind):
    names = [i.name for i in session(FROM / f"{name}.onnx").get_inputs()]
    out = TO / f"{name}.{kind}.onnx"
    with tempfile.TemporaryDirectory() as folder:
        prepared = pathlib.Path(folder) / "prepared.onnx"
        quant_pre_process(str(FROM / f"{name}.onnx"), str(prepared),
                          skip_symbolic_shape=True)
        if kind == "dynamic":
            quantize_dynamic(prepared, out, weight_type=QuantType.QInt8)
        else:
            quantize_static(
                prepared, out, Reader(name, names),
                quant_format=(QuantFormat.QDQ if kind == "qdq"
                              else QuantFormat.QOperator),
                per_channel=kind == "qdq",
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8)
    served = session(out)
    for tag, feed in feeds(name, names):
        arrays = {f"in{i}": feed[n] for i, n in enumerate(names)}
        for i, value in enumerate(served.run(None, feed)):
            arrays[f"out{i}"] = value
        np.savez_compressed(TO / f"{name}.{kind}.{tag}.npz", **arrays)


def main():
    TO.mkdir(exist_ok=True)
    make("resnet50", "qdq")
    make("resnet50", "qlinear")
    make("mobilenet_v3_large", "qdq")
    make("bert_base", "qdq")
    make("bert_base", "dynamic")


if __name__ == "__main__":
    main()
