#!/usr/bin/env python3
"""Queries, keys and values as three products, which a plan runs as one stage,
beside one product of joined weights.

  qkv.py --millrace BIN [--sizes 1x128x384,8x128x768] [--precisions f32,bf16]
         [--layers 6] [--rounds 5] [--threads 2]

Each file is so many layers of attention alone; a size is batch x tokens x width,
heads have 64 dimensions. Runs by turns; shown are medians of milliseconds and of
the ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEAD = 64


class Writer:
    def __init__(self):
        self.nodes, self.constants = [], []
        self.random = np.random.default_rng(0)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, outputs=1, **attrs):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names[0] if outputs == 1 else names

    def linear(self, x, k, n):
        w = self.random.standard_normal((k, n)).astype(np.float32) * 0.02
        y = self.node("MatMul", [x, self.constant(w)])
        return self.node("Add", [y, self.constant(np.zeros(n, np.float32))])


def attention(w, x, joined, batch, tokens, width):
    if joined:
        parts = split(w, w.linear(x, width, 3 * width), width)
    else:
        parts = [w.linear(x, width, width) for _ in range(3)]
    heads = w.constant(np.array([batch, tokens, width // HEAD, HEAD]))
    q, k, v = (w.node("Transpose", [w.node("Reshape", [part, heads])], perm=perm)
               for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
    scores = w.node("Mul", [w.node("MatMul", [q, k]), w.constant(np.float32(HEAD ** -0.5))])
    y = w.node("MatMul", [w.node("Softmax", [scores], axis=-1), v])
    y = w.node("Transpose", [y], perm=[0, 2, 1, 3])
    return w.node("Reshape", [y, w.constant(np.array([batch, tokens, width]))])


def split(w, x, width):
    return w.node("Split", [x, w.constant(np.array([width] * 3))], outputs=3, axis=2)


def write(path, joined, layers, shape):
    w, x = Writer(), "x"
    for _ in range(layers):
        x = attention(w, x, joined, *shape)
    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", x)]
    graph = helper.make_graph(w.nodes, "qkv", port[:1], port[1:], w.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    np.savez(path + ".npz", x=w.random.standard_normal(shape).astype(np.float32))


def median_ms(a, path, precision):
    done = subprocess.run([a.millrace, "run", path, "--input", path + ".npz", "--iters", "60",
                           "--threads", str(a.threads), "--precision", precision],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])["median_ms"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--millrace", required=True)
    ap.add_argument("--sizes", default="1x16x768,1x128x384,1x128x768,8x128x384,8x128x768")
    ap.add_argument("--precisions", default="f32,bf16")
    ap.add_argument("--layers", type=int, default=6)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=2)
    a = ap.parse_args()
    print("| size | precision | three | one | three / one |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size in a.sizes.split(","):
            shape = [int(n) for n in size.split("x")]
            paths = [os.path.join(folder, f"{size}.{joined}.onnx") for joined in (0, 1)]
            for joined, path in enumerate(paths):
                write(path, joined, a.layers, shape)
            for precision in a.precisions.split(","):
                rounds = [[median_ms(a, path, precision) for path in paths] for _ in range(a.rounds)]
                three, one = (statistics.median(column) for column in zip(*rounds))
                ratio = statistics.median(r[0] / r[1] for r in rounds)
                print(f"| {size} | {precision} | {three:.3g} | {one:.3g} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
