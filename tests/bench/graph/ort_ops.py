#!/usr/bin/env python3
"""Graphs of one operator of ONNX Runtime's own domain, com.microsoft:
`millrace run` beside ONNX Runtime. Bytes may be one level apart.

    ort_ops.py [a,b,…] --millrace BIN
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(20261122)
TOLERANCE = 1e-5


def floats(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def ints(high, *shape, dtype=np.int32):
    return RNG.integers(0, high, shape).astype(dtype)


def case(op, inputs, weights=None, outputs=1, told=True, domain="com.microsoft", **attrs):
    """Inputs and weights by name, in the order of the operands; None: left out.
    `told`: the file tells the ranks of inputs."""
    weights = weights or {}
    operands = {**inputs, **weights}
    order = attrs.pop("order", list(operands))
    names = [n if n in operands else "" for n in order]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs,
                            name="n", domain=domain, **attrs)
    kind = lambda v: helper.np_dtype_to_tensor_dtype(v.dtype)
    ports = [helper.make_tensor_value_info(n, kind(v), list(v.shape) if told else None) for n, v in inputs.items()]
    made = [n for n in node.output if n]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in made],
                              [numpy_helper.from_array(v, n) for n, v in weights.items()])
    for port in graph.output:
        port.ClearField("type")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 8
    return model, inputs


def quantised(*shape):
    return ints(255, *shape, dtype=np.uint8)


def signed(*shape):
    return (ints(255, *shape) - 127).astype(np.int8)


SCALE, ZERO = np.float32(0.05), np.uint8(120)


def linear(op, **attrs):
    two = op in ("QLinearAdd", "QLinearMul")
    weights = {"s": SCALE, "z": ZERO, **({"b": quantised(2, 4, 6, 6), "bs": np.float32(0.03), "bz": np.uint8(99)} if two else {}),
               "ys": np.float32(0.07), "yz": np.uint8(111)}
    return case(op, {"x": quantised(2, 4, 6, 6)}, weights, **attrs)


def quantised_attention():
    rows = {"x": quantised(2, 7, 16)}
    one = {"w": signed(16, 48), "b": floats(48), "xs": SCALE, "ws": np.float32(0.02), "xz": ZERO, "wz": np.int8(0)}
    columns = {**one, "ws": np.abs(floats(48)) / 50, "wz": signed(48)}
    shown = {"keys": ints(2, 2, 7), "pairs": ints(2, 2, 7, 7), "lengths": np.array([7, 4], np.int32)}
    order = ["x", "w", "b", "xs", "ws", "m", "xz", "wz", "past"]
    yield "QAttention", case("QAttention", rows, one, num_heads=4, order=order)
    yield "QAttention.columns", case("QAttention", rows, columns, num_heads=4, order=order, scale=0.2)
    yield "QAttention.plain", case("QAttention", rows, {k: v for k, v in one.items() if k not in ("xz", "wz")}, num_heads=4, order=order)
    for name, mask in shown.items():
        yield f"QAttention.{name}", case("QAttention", {**rows, "m": mask}, one, num_heads=4, order=order, mask_filter_value=-50.0)
    yield "QAttention.past", case("QAttention", {**rows, "past": floats(2, 2, 4, 3, 4)}, one, 2, num_heads=4, unidirectional=1, order=order)


def of_few_bits():
    for bits, rows, size, zeros, shape in ((4, 32, 16, None, (3,)), (4, 40, 16, "bytes", (2, 3)), (4, 40, 16, "floats", (3,)), (4, 64, 32, "bytes", (3,)),
                                           (8, 40, 16, "bytes", (3,)), (8, 64, 32, None, (3,)), (2, 64, 16, "bytes", (3,))):
        columns, blocks = 21, -(-rows // size)
        weights = {"b": ints(256, columns, blocks, size * bits // 8, dtype=np.uint8), "s": np.abs(floats(columns, blocks)), "c": floats(columns)}
        if zeros == "bytes":
            weights["z"] = ints(256, columns, -(-blocks * bits // 8), dtype=np.uint8)
        elif zeros:
            weights["z"] = floats(columns, blocks)
        yield f"MatMulNBits.{bits}.{rows}.{zeros}", case("MatMulNBits", {"x": floats(*shape, rows)}, weights, K=rows, N=columns, bits=bits, block_size=size,
                                                         order=["x", "b", "s", "z", "-", "c"])


def cases():
    x = {"x": floats(2, 5, 16)}
    yield "Gelu", case("Gelu", x)
    yield "FastGelu", case("FastGelu", x, {"b": floats(16)})
    yield "BiasGelu", case("BiasGelu", x, {"b": floats(16)})
    yield "QuickGelu", case("QuickGelu", x, alpha=1.5)
    yield "SimplifiedLayerNormalization", case("SimplifiedLayerNormalization", x, {"w": floats(16)}, domain="", axis=-1, epsilon=1e-3)
    skip = {"x": floats(2, 5, 16), "s": floats(2, 5, 16)}
    yield "SkipLayerNormalization", case("SkipLayerNormalization", skip, {"g": floats(16), "b": floats(16), "c": floats(16)}, ["y", "", "", "sum"], epsilon=1e-3)
    yield "SkipLayerNormalization.plain", case("SkipLayerNormalization", skip, {"g": floats(16)}, epsilon=1e-3)
    yield "SkipSimplifiedLayerNormalization", case("SkipSimplifiedLayerNormalization", skip, {"g": floats(16), "c": floats(16)}, ["y", "", "", "sum"], epsilon=1e-3)
    for told in (True, False):
        for a in (0, 1):
            for b in (0, 1):
                shapes = [(2, 3, 6, 4) if a else (2, 3, 4, 6), (2, 3, 5, 6) if b else (2, 3, 6, 5)]
                yield f"FusedMatMul.{a}{b}{told}", case("FusedMatMul", {"a": floats(*shapes[0]), "b": floats(*shapes[1])}, told=told, transA=a, transB=b, alpha=0.3)
        batched = {"a": floats(4, 2, 3, 6), "b": floats(5, 2, 3, 6)}
        yield f"FusedMatMul.batch{told}", case("FusedMatMul", batched, told=told, transBatchA=1, transBatchB=1, transB=1)
        yield f"FusedMatMul.batches{told}", case("FusedMatMul", {"a": floats(6, 2, 3, 4), "b": floats(2, 3, 6, 5)}, told=told, transBatchA=1, transA=1)
    yield "FusedMatMul.vector", case("FusedMatMul", {"a": floats(6), "b": floats(6, 5)}, transA=1)
    image = {"x": floats(2, 4, 8, 8)}
    for name, params in (("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", []), ("Sigmoid", [])):
        yield f"FusedConv.{name}", case("FusedConv", image, {"w": floats(6, 4, 3, 3), "b": floats(6)}, activation=name, pads=[1] * 4, **({"activation_params": params} if params else {}))
    yield "FusedConv.sum", case("FusedConv", {**image, "z": floats(2, 6, 8, 8)}, {"w": floats(6, 4, 3, 3), "b": floats(6)}, activation="Relu", pads=[1] * 4, order=["x", "w", "b", "z"])
    yield "FusedGemm", case("FusedGemm", {"x": floats(3, 6)}, {"w": floats(5, 6), "b": floats(5)}, activation="LeakyRelu", activation_alpha=0.3, transB=1)
    for name, alpha, other in (("Elu", 0.7, {}), ("ThresholdedRelu", 0.7, {}), ("Selu", 1.2, {"activation_gamma": 1.1}), ("HardSigmoid", 0.3, {"activation_beta": 0.4})):
        yield f"FusedGemm.{name}", case("FusedGemm", {"x": floats(3, 6)}, {"w": floats(6, 5)}, activation=name, activation_alpha=alpha, **other)
    words = {"ids": ints(50, 2, 7), "segments": ints(2, 2, 7)}
    tables = {"w": floats(50, 16), "p": floats(20, 16), "t": floats(2, 16), "g": floats(16), "b": floats(16)}
    order = ["ids", "segments", "w", "p", "t", "g", "b", "mask"]
    shown = (np.arange(7)[None] < np.array([[7], [4]])).astype(np.int32)
    yield "EmbedLayerNormalization", case("EmbedLayerNormalization", {**words, "mask": shown}, tables, 3, order=order, epsilon=1e-3)
    yield "EmbedLayerNormalization.plain", case("EmbedLayerNormalization", {"ids": words["ids"]}, {k: v for k, v in tables.items() if k != "t"}, 2,
                                                order=["ids", "-", "w", "p", "-", "g", "b"], epsilon=1e-3)
    of_bytes = {k: quantised(*v.shape) for k, v in tables.items()}
    scales = {f"{k}s": np.float32(0.01 * (i + 1)) for i, k in enumerate(tables)}
    zeros = {f"{k}z": np.uint8(120 + i) for i, k in enumerate(tables)}
    yield "QEmbedLayerNormalization", case("QEmbedLayerNormalization", {**words, "mask": shown}, {**of_bytes, **scales, **zeros}, 2, order=[*order, *scales, *zeros], epsilon=1e-3)
    weights = {"w": floats(16, 48), "b": floats(48)}
    rows = {"x": floats(2, 7, 16)}
    yield "Attention", case("Attention", rows, weights, num_heads=4)
    yield "Attention.keys", case("Attention", {**rows, "m": shown}, weights, num_heads=4, order=["x", "w", "b", "m"])
    yield "Attention.lengths", case("Attention", {**rows, "m": np.array([7, 4], np.int32)}, weights, num_heads=4, order=["x", "w", "b", "m"])
    for last in (4, 0):
        lengths = {**rows, "m": np.array([7, last], np.int32)}
        yield f"Attention.lengths{last}", case("Attention", lengths, weights, num_heads=4, order=["x", "w", "b", "m"], mask_filter_value=-2.0, unidirectional=int(last > 0))
    yield "Attention.lengths.past", case("Attention", {**rows, "m": np.array([10, 6], np.int32), "past": floats(2, 2, 4, 3, 4)}, weights, 2, num_heads=4, order=["x", "w", "b", "m", "past"])
    yield "Attention.none", case("Attention", {**rows, "m": shown * 0}, weights, num_heads=4, order=["x", "w", "b", "m"])
    yield "Attention.pairs", case("Attention", {**rows, "m": ints(2, 2, 7, 7)}, weights, num_heads=4, order=["x", "w", "b", "m"], mask_filter_value=-50.0)
    yield "Attention.causal", case("Attention", rows, weights, num_heads=4, unidirectional=1, scale=0.2)
    yield "Attention.past", case("Attention", {**rows, "past": floats(2, 2, 4, 3, 4)}, weights, 2, num_heads=4, unidirectional=1, order=["x", "w", "b", "-", "past"])
    yield "Attention.bias", case("Attention", {**rows, "a": floats(2, 4, 7, 7)}, weights, num_heads=4, order=["x", "w", "b", "-", "-", "a"])
    yield "Attention.sizes", case("Attention", rows, {"w": floats(16, 56), "b": floats(56)}, num_heads=4, qkv_hidden_sizes=[16, 16, 24])
    heads = {"q": floats(2, 7, 16), "k": floats(2, 9, 16), "v": floats(2, 9, 16)}
    yield "MultiHeadAttention", case("MultiHeadAttention", heads, {"b": floats(48)}, num_heads=4)
    keys = (np.arange(9)[None] < np.array([[9], [4]])).astype(np.int32)
    yield "MultiHeadAttention.keys", case("MultiHeadAttention", {**heads, "m": keys}, num_heads=4, order=["q", "k", "v", "-", "m"])
    yield "MultiHeadAttention.past", case("MultiHeadAttention", {**heads, "pk": floats(2, 4, 3, 4), "pv": floats(2, 4, 3, 4)}, None, 3, num_heads=4,
                                          order=["q", "k", "v", "-", "-", "-", "pk", "pv"])
    yield "MultiHeadAttention.lengths", case("MultiHeadAttention", {**heads, "m": np.array([9, 4], np.int32)}, num_heads=4, order=["q", "k", "v", "-", "m"])
    yield "MultiHeadAttention.sizes", case("MultiHeadAttention", {**heads, "v": floats(2, 9, 24)}, {"b": floats(56)}, num_heads=4)
    with_heads = {"q": floats(2, 7, 16), "k": floats(2, 4, 9, 4), "v": floats(2, 4, 9, 4)}
    yield "MultiHeadAttention.heads", case("MultiHeadAttention", with_heads, num_heads=4)
    yield "MultiHeadAttention.headsBias", case("MultiHeadAttention", with_heads, {"b": floats(48)}, num_heads=4)
    yield from quantised_attention()
    turned = {"x": floats(2, 7, 32), "p": np.tile(np.arange(7), (2, 1))}
    yield "RotaryEmbedding.rows", case("RotaryEmbedding", turned, {"c": floats(20, 4), "s": floats(20, 4)})
    for told in (3, 4):
        yield f"RotaryEmbedding.first{told}", case("RotaryEmbedding", {"x": floats(*(2, 4, 7, 8)[4 - told:]), "p": np.array([3])}, {"c": floats(20, 4), "s": floats(20, 4)})
    yield "RotaryEmbedding", case("RotaryEmbedding", {"x": floats(2, 4, 7, 8), "p": np.tile(np.arange(7), (2, 1))}, {"c": floats(20, 4), "s": floats(20, 4)})
    for op in ("QLinearAdd", "QLinearMul", "QLinearSigmoid"):
        yield op, linear(op)
    yield "QLinearLeakyRelu", linear("QLinearLeakyRelu", alpha=0.2)
    yield "QLinearGlobalAveragePool", linear("QLinearGlobalAveragePool", channels_last=0)
    yield "QLinearAveragePool", linear("QLinearAveragePool", kernel_shape=[2, 2], strides=[2, 2])
    yield "QLinearSoftmax", linear("QLinearSoftmax", axis=-1, opset=13)
    for axis in ({}, {"axis": 1}, {"axis": 2}, {"axis": -2}):
        for told in (True, False):
            yield f"QLinearSoftmax.old{axis.get('axis', '')}{told}", linear("QLinearSoftmax", opset=11, told=told, **axis)
    yield "QLinearConcat", case("QLinearConcat", {"x": quantised(2, 3), "y": quantised(2, 4)},
                                {"os": np.float32(0.1), "oz": np.uint8(100), "xs": SCALE, "xz": ZERO, "ys": np.float32(0.08), "yz": np.uint8(90)},
                                axis=1, order=["os", "oz", "x", "xs", "xz", "y", "ys", "yz"])
    product = {"s": SCALE, "z": ZERO, "b": ints(255, 6, 5).astype(np.int8), "bs": np.float32(0.02), "bz": np.int8(0), "c": ints(900, 5)}
    yield "QGemm", case("QGemm", {"x": quantised(3, 6)}, {**product, "ys": np.float32(0.3), "yz": np.uint8(128)})
    yield "QGemm.columns", case("QGemm", {"x": quantised(3, 6)}, {**product, "bs": np.abs(floats(5)), "bz": np.zeros(5, np.int8)})
    yield "QGemm.alpha", case("QGemm", {"x": quantised(3, 6)}, product, alpha=0.5)
    yield from of_few_bits()
    bytes_ = {"b": product["b"], "as": SCALE, "bs": np.abs(floats(5)), "az": ZERO, "bz": np.zeros(5, np.int8), "c": floats(5)}
    yield "MatMulIntegerToFloat", case("MatMulIntegerToFloat", {"x": quantised(3, 6)}, bytes_)
    yield "DynamicQuantizeMatMul", case("DynamicQuantizeMatMul", {"x": floats(3, 6)}, {"b": product["b"], "bs": np.float32(0.02), "bz": np.int8(3), "c": floats(5)})


def run(millrace, model, inputs, folder):
    """What is wrong, or nothing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    want = session.run(None, inputs)
    path, given, expected = (os.path.join(folder, n) for n in ("m.onnx", "in.npz", "out.npz"))
    onnx.save(model, path)
    np.savez(given, **inputs)
    np.savez(expected, **{f"out{i}": v for i, v in enumerate(want)})
    level = max((1.01 / max(int(np.abs(w.astype(int)).max()), 1) for w in want if w.dtype.itemsize == 1), default=0)
    done = subprocess.run([millrace, "run", path, "--input", given, "--expect", expected, "--tol", str(max(TOLERANCE, level))],
                          capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()[-300:] or f"it died ({done.returncode})"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="?", default="")
    ap.add_argument("--millrace", default="build/release/bin/millrace")
    a = ap.parse_args()
    wrong = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, inputs) in cases():
            if a.names and name.split(".")[0] not in a.names.split(","):
                continue
            try:
                why = run(a.millrace, model, inputs, folder)
            except Exception as e:
                why = f"ONNX Runtime: {str(e)[:200]}"
            count += 1
            wrong += bool(why)
            if why:
                print(f"{name}: {why}")
    print(f"{count - wrong} of {count} agree with ONNX Runtime {ort.__version__}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
