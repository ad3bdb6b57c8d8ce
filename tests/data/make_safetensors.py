#!/usr/bin/env python3
"""Writes tests/data/safetensors/*.safetensors with the safetensors package.

    python3 tests/data/make_safetensors.py     (safetensors 0.8.0, torch 2.15)

Values are simple enough for a test to know them: a tensor of n values holds
0, 1, ... n - 1 in its own type.
"""
import pathlib

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).parent / "safetensors"
DTYPES = ["float32", "float16", "bfloat16", "float64", "int8", "uint8",
          "int32", "int64", "float8_e4m3fn"]


def count_up(dtype, *shape):
    count = 1
    for n in shape:
        count *= n
    return torch.arange(count).to(getattr(torch, dtype)).reshape(shape)


def main():
    OUT.mkdir(exist_ok=True)
    kinds = {f"t.{dtype}": count_up(dtype, 2, 3) for dtype in DTYPES}
    kinds["scalar"] = torch.tensor(0.5)
    kinds["empty"] = count_up("float32", 0, 4)
    kinds["deep"] = count_up("int8", 2, 1, 2, 1, 2)
    kinds['na\u00efve "name"'] = count_up("float16", 1)
    save_file(kinds, OUT / "kinds.safetensors",
              {"format": "pt", "made by": "a test"})
    save_file({}, OUT / "none.safetensors")


if __name__ == "__main__":
    main()
