#!/usr/bin/env python3
"""Writes blocks.bin: random blocks of every quantised weight type that is
served, and what the gguf Python package says their values are.

    make_blocks.py blocks.bin        (pip install gguf numpy)

The file is little-endian: for each type its GGUF number, the number of blocks,
bytes and values of a block (four uint32), the blocks, then the values (f32).
"""
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# Where a block keeps its f16 numbers.
HALVES = {
    Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0],
    Type.Q5_1: [0, 2], Type.Q2_K: [80, 82], Type.Q3_K: [108],
    Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [],
}
# Ordinary, negative, the least and another subnormal, zero, negative zero, and
# one of the greatest that cannot overflow.
D = [0x2A37, 0x9C55, 0x0001, 0x82A9, 0x0000, 0x8000, 0x7BFF, 0x1234]
EXPONENTS = [119, 131, 0, 1, 2, 97, 250, 127]


def main():
    rng = np.random.default_rng(20)
    with open(sys.argv[1], "wb") as out:
        for kind, halves in HALVES.items():
            values, size = GGML_QUANT_SIZES[kind]
            count = 8 if values == 32 else 3
            blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
            blocks[1] = 0xFF  # every code and scale at its end
            blocks[2, : size // 2] = 0
            for i in range(count):
                if kind == Type.MXFP4:
                    blocks[i, 0] = EXPONENTS[i]
                for n, at in enumerate(halves):
                    number = D[(i + 3 * n) % len(D)]
                    blocks[i, at : at + 2] = list(struct.pack("<H", number))
            result = dequantize(blocks.reshape(-1), kind).astype("<f4")
            assert result.size == count * values and np.isfinite(result).all()
            out.write(struct.pack("<4I", kind.value, count, size, values))
            out.write(blocks.tobytes())
            out.write(result.tobytes())


main()
