#!/usr/bin/env python3
"""500 trees of depth 6 on 28 features, 1 and 1,000 rows: `millrace run` and
ONNX Runtime by turns, two threads each. Prints medians and the ratio.

  pip install numpy scikit-learn skl2onnx onnxruntime
  tests/bench/tabular.py [build/release/bin/millrace] [rounds]
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingRegressor

BINARY = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/millrace"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5


def peer(session, feeds, iters):
    times = []
    for _ in range(iters):
        begin = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def ours(model, inputs, iters):
    out = subprocess.run([BINARY, "run", model, "--input", inputs, "--iters",
                          str(iters), "--threads", "2"], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out.strip().split("\n")[-1])["median_ms"]


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 28)).astype(np.float32)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + rng.normal(size=4000) * 0.1
    model = GradientBoostingRegressor(n_estimators=500, max_depth=6,
                                      subsample=0.5).fit(x, y)
    folder = pathlib.Path(tempfile.mkdtemp())
    data = to_onnx(model, x[:1]).SerializeToString()
    (folder / "trees.onnx").write_bytes(data)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(data, options)
    for rows in (1, 1000):
        feeds = {"X": x[:rows]}
        np.savez(folder / "x.npz", **feeds)
        iters = 2000 if rows == 1 else 200
        turns = [(ours(folder / "trees.onnx", folder / "x.npz", iters),
                  peer(session, feeds, iters)) for _ in range(ROUNDS)]
        a, b = (statistics.median(t[i] for t in turns) for i in (0, 1))
        print(f"{rows} rows: millrace {a:.4f} ms "
              f"({min(t[0] for t in turns):.4f} to "
              f"{max(t[0] for t in turns):.4f}), onnxruntime {b:.4f} ms "
              f"({min(t[1] for t in turns):.4f} to "
              f"{max(t[1] for t in turns):.4f}), ratio {b / a:.2f}")


main()
