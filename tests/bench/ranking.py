#!/usr/bin/env python3
"""Embedding bags over tables beyond the caches: GB/s of table rows read, beside
what the machine reads at best, and beside PyTorch's EmbeddingBag in the same run.

    tests/bench/ranking.py [build/release/bin] [rows of a table] [rounds]

Eight tables of 1,000,000 rows of 64 values (2 GB in FP32), 4,096 bags of 0 to 40
random rows from each, two threads. Takes 5 GB of memory and 2 GB of disk, and
torch; run it with the Python of tests/bench/graph.sh. First the kernels alone
(pool_rows_bench): "stream" is the bandwidth of reading from front to back, "rows"
reads the same random rows and computes nothing. Then whole graphs, their tables
mapped from the .pt2 file: `millrace run` and PyTorch by turns, medians, and of the
limits of the kernels' table that pages of 4 KiB have, as a mapped file has them.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.export import Dim

BIN = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin")
ROWS = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
TABLES, SIZE, BAGS, MOST, THREADS, ITERS = 8, 64, 4096, 40, 2, 20


class Bags(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        for n in range(TABLES):
            table = torch.randn(ROWS, SIZE)
            if kind == "f16":
                table = table.half()
            if kind == "int8":
                table = torch.ops.quantized.embedding_bag_byte_prepack(table)
            self.register_buffer(f"table{n}", table)

    def forward(self, *inputs):
        pooled = []
        for n in range(TABLES):
            values, offsets = inputs[2 * n:2 * n + 2]
            table = getattr(self, f"table{n}")
            if self.kind == "int8":
                pooled.append(
                    torch.ops.quantized.embedding_bag_byte_rowwise_offsets(
                        table, values, offsets))
            else:
                pooled.append(nn.functional.embedding_bag(
                    values, table, offsets, mode="sum").float())
        return torch.cat(pooled, 1)


def requests(random):
    inputs = []
    for _ in range(TABLES):
        lengths = random.integers(0, MOST + 1, BAGS)
        offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        inputs += [random.integers(0, ROWS, lengths.sum()), offsets]
    return [torch.from_numpy(np.ascontiguousarray(x)) for x in inputs]


def export(model, inputs, path):
    rows = Dim("rows", min=1, max=1 << 20)
    shapes = tuple(
        {0: rows if i % 2 else Dim(f"n{i}")} for i in range(len(inputs)))
    program = torch.export.export(model, tuple(inputs),
                                  dynamic_shapes=(shapes,))
    torch.export.save(program, path)


def ours(model, inputs, out):
    got = subprocess.run(
        [BIN / "millrace", "run", model, "--input", inputs, "--iters",
         str(ITERS), "--threads", str(THREADS), "--output", out],
        check=True, capture_output=True, text=True).stdout
    return json.loads(got.strip().split("\n")[-1])["median_ms"]


def torchs(model, inputs):
    times = []
    with torch.inference_mode():
        for _ in range(ITERS):
            begin = time.perf_counter()
            model(*inputs)
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def kernels():
    out = subprocess.run([BIN / "pool_rows_bench", str(TABLES), str(ROWS),
                          str(THREADS)], check=True, capture_output=True,
                         text=True).stdout
    print("kernels alone, GB/s of rows")
    print("pages  rows  stream   rows  pooled  pooled/stream  pooled/rows")
    limits = {}
    for line in out.splitlines():
        got = json.loads(line)
        pooled, stream, rows = (got[f"{n}_gbs"]
                                for n in ("pooled", "stream", "rows"))
        print(f"{got['pages']:6} {got['rows']:4} {stream:7.1f} {rows:6.1f} "
              f"{pooled:7.1f} {pooled / stream:14.2f} {pooled / rows:12.2f}")
        if got["pages"] != "huge":
            limits[got["rows"]] = stream, rows
    return limits


def graphs(limits):
    torch.set_num_threads(THREADS)
    print("\ngraphs, GB/s of rows: millrace (tables mapped) beside PyTorch "
          + torch.__version__ + ", and of what the machine reads")
    print("rows  millrace  torch  ratio  /stream  /rows  greatest difference")
    random = np.random.default_rng(1)
    inputs = requests(random)
    row_bytes = {"f32": 4 * SIZE, "f16": 2 * SIZE, "int8": SIZE + 8}
    num_rows = sum(len(x) for x in inputs[::2])
    for kind, each in row_bytes.items():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            model = Bags(kind).eval()
            export(model, inputs, folder / "bags.pt2")
            np.savez(folder / "in.npz", **{
                f"in{i}": x.numpy() for i, x in enumerate(inputs)})
            turns = [(ours(folder / "bags.pt2", folder / "in.npz",
                           folder / "out.npz"), torchs(model, inputs))
                     for _ in range(ROUNDS)]
            with torch.inference_mode():
                want = model(*inputs).numpy()
            arrays = np.load(folder / "out.npz")
            off = np.abs(arrays[arrays.files[0]] - want).max()
            a, b = (statistics.median(t[i] for t in turns) for i in (0, 1))
            mine, peer = (num_rows * each / ms / 1e6 for ms in (a, b))
            stream, rows = limits[kind]
            print(f"{kind:4} {mine:9.1f} {peer:6.1f} {b / a:6.2f} "
                  f"{mine / stream:8.2f} {mine / rows:6.2f}  {off:.2g}",
                  flush=True)
            del model, want


if __name__ == "__main__":
    graphs(kernels())
