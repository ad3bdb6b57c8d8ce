#!/usr/bin/env python3
"""Writes first_target.txt: the cases that use only the operators of our bench
models' ONNX files, in float, int64, int32 and bool, and what ONNX Runtime says.

    dump_onnx_cases.py FOLDER --check
    first_target.py FOLDER/index.json

A case we do not pass is to have its reason in why_not.txt: "NAME reason…".
"""
import argparse
import json
import pathlib

HERE = pathlib.Path(__file__).parent
TYPES = {"float", "int64", "int32", "bool"}
# Of the seventeen models, by either exporter.
OPERATORS = set("""
    Add And AveragePool BatchNormalization Cast CastLike Clip Concat ConcatFromSequence Constant ConstantOfShape Conv
    ConvTranspose Div Equal Erf Expand Flatten GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GreaterOrEqual
    HardSigmoid HardSwish Identity If InstanceNormalization IsNaN LSTM LayerNormalization Less LogSoftmax Loop MatMul Max
    MaxPool Mod Mul Not Pad Pow Range ReduceL2 ReduceMean ReduceSum Relu Reshape Resize ScatterND SequenceEmpty
    SequenceInsert Shape Sigmoid Size Slice Softmax Split Sqrt Squeeze Sub Tanh Transpose Trilu Unsqueeze Where
""".split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("index", type=pathlib.Path)
    index = json.loads(parser.parse_args().index.read_text())
    import onnxruntime
    rows = sorted((r["name"], r["ort"]) for r in index if set(r["ops"]) <= OPERATORS and set(r["types"]) <= TYPES)
    lines = [f"# ONNX Runtime {onnxruntime.__version__}: pass, differs or unsupported. Written by first_target.py."]
    lines += [f"{name} {verdict}" for name, verdict in rows]
    (HERE / "first_target.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
