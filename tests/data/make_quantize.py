#!/usr/bin/env python3
"""Writes tests/golden/llm/quantize.json: rows of f32 and the blocks that the
gguf Python package makes of them, all in hex.

    python3 tests/data/make_quantize.py     (gguf 0.19.0, numpy 2.4.6)
"""
import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

OUT = pathlib.Path(__file__).parents[1] / "golden" / "llm" / "quantize.json"


def rows():
    rng = np.random.default_rng(11)
    yield np.zeros(32)
    yield np.full(32, -0.75)
    yield np.full(32, 3e-8)                      # the step is no half precision
    yield np.where(np.arange(32) % 2, 1.0, -1.0)   # the first of equals counts
    yield np.where(np.arange(32) % 2, -1.0, 1.0)
    yield (np.arange(32) - 16) / 16                # numbers and halves between
    yield (np.arange(32) - 15.5) / 127
    yield np.linspace(-127, 127, 32) / 2
    yield np.concatenate([[1000.0], rng.normal(size=31)])
    yield np.abs(rng.normal(size=32))
    yield -np.abs(rng.normal(size=32))
    for scale in (1e-3, 0.02, 1, 300):
        for _ in range(4):
            yield rng.normal(size=32) * scale
            yield rng.standard_cauchy(size=32) * scale


def main():
    data = np.stack(list(rows())).astype(np.float32)
    kinds = {"Q8_0": Type.Q8_0, "Q4_0": Type.Q4_0, "Q4_1": Type.Q4_1,
             "Q5_0": Type.Q5_0, "Q5_1": Type.Q5_1}
    OUT.write_text(json.dumps({
        "rows": [row.tobytes().hex() for row in data],
        **{name: [block.tobytes().hex()
                  for block in quants.quantize(data, kind)]
           for name, kind in kinds.items()}}, indent=0) + "\n")


if __name__ == "__main__":
    main()
