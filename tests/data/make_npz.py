#!/usr/bin/env python3
"""Writes npz/kinds.npz and npz/packed.npz with numpy (any version since 1.20):
every type that tensors have, a scalar, an empty array, Fortran order.

    tests/data/make_npz.py [FOLDER]
"""
import pathlib
import sys

import numpy as np

TYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
         "int64", "float16", "float32", "float64"]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
    folder = (folder.parent if folder.is_file() else folder) / "npz"
    folder.mkdir(exist_ok=True)
    arrays = {t: np.arange(6).reshape(2, 3).astype(t) for t in TYPES}
    arrays["bool"] = np.array([False, True, True])
    arrays["scalar"] = np.array(1.5, "float32")
    arrays["empty"] = np.zeros((0, 4), "int8")
    arrays["fortran"] = np.asfortranarray(
        np.arange(6, dtype="int32").reshape(2, 3))
    np.savez(folder / "kinds.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)


if __name__ == "__main__":
    main()
