#!/usr/bin/env python3
"""ResNet-50 behind JPEG pictures: micro-batches whose stages overlap beside the
same work in sequence. Prints medians of pictures/s by turns, and the ratios.

  pip install numpy onnx pillow
  tests/bench/micro_batches.py [build/release/bin/millrace] [--rounds 5]
      [--pictures 32] [--side 1024 ...] [--width 1.0]

One client sends requests of so many pictures, one after the other. The same
network (random weights) is served three times from one server:

  sequence  all pictures are read by one thread, computed as batches of 8 on
            both cores, then answered: stages do not overlap
  without   the server without micro_batching
  pipeline  micro-batches of 4, two threads that read, two instances of one core

`sequence` is one micro-batch of all pictures with one of each stage at a time.
`--side` is the length of the pictures' sides in pixels: the larger, the more of
the work is reading; its share is printed. `--width` makes the network narrower,
for a quick look.
"""
import argparse
import base64
import concurrent.futures
import io
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.request

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

TASK = """
task: classify
task_options:
  resize: 256
  center_crop: 224
  mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
max_batch_size: %d
instance_count: %d
"""
MICRO = """micro_batching:
  micro_batch_size: %d
  parallelism: {preprocess: %d, inference: %d, postprocess: 1}
"""
FORMS = {
    "sequence": lambda n: TASK % (n, 1) + MICRO % (n, 1, 1),
    "without": lambda n: TASK % (n, 1),
    "pipeline": lambda n: TASK % (8, 2) + MICRO % (4, 2, 3),
}


def resnet50(width):
    """He et al. 2015, table 1, 50 layers; batch norm is folded into the
    convolutions' biases."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def conv(x, name, before, after, size, stride=1, relu=True):
        scale = np.sqrt(2 / (before * size * size))
        w = rng.normal(size=(after, before, size, size)) * scale
        for part, value in (("w", w), ("b", np.zeros(after))):
            weights.append(numpy_helper.from_array(
                value.astype(np.float32), f"{name}.{part}"))
        nodes.append(helper.make_node(
            "Conv", [x, f"{name}.w", f"{name}.b"], [name],
            kernel_shape=[size, size], strides=[stride, stride],
            pads=[size // 2] * 4))
        if not relu:
            return name
        nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"]))
        return f"{name}.relu"

    channels = int(64 * width)
    x = conv("pixels", "stem", 3, channels, 7, 2)
    nodes.append(helper.make_node("MaxPool", [x], ["pool"], kernel_shape=[3, 3],
                                  strides=[2, 2], pads=[1] * 4))
    x, before = "pool", channels
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = channels * 2 ** stage
        for block in range(blocks):
            name = f"s{stage}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            y = conv(x, name + ".a", before, inner, 1)
            y = conv(y, name + ".b", inner, inner, 3, stride)
            y = conv(y, name + ".c", inner, 4 * inner, 1, relu=False)
            if block == 0:
                x = conv(x, name + ".d", before, 4 * inner, 1, stride, False)
            nodes.append(helper.make_node("Add", [x, y], [name + ".add"]))
            nodes.append(helper.make_node("Relu", [name + ".add"], [name]))
            x, before = name, 4 * inner
    fc = rng.normal(size=(before, 1000)) * 0.01
    weights.append(numpy_helper.from_array(fc.astype(np.float32), "fc"))
    nodes += [helper.make_node("GlobalAveragePool", [x], ["mean"]),
              helper.make_node("Flatten", ["mean"], ["flat"]),
              helper.make_node("MatMul", ["flat", "fc"], ["scores"])]
    graph = helper.make_graph(
        nodes, "resnet50",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT,
                                       ["n", 3, 224, 224])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT,
                                       ["n", 1000])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)],
                             ir_version=8)


def jpeg(side, seed):
    """A smooth scene with some noise, about as dense as a photo."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (side // 32, side // 32, 3), np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize((side, side),
                                                       Image.BICUBIC), np.int16)
    pixels = pixels + rng.integers(-12, 13, pixels.shape, np.int16)
    out = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(
        out, "JPEG", quality=90)
    return out.getvalue()


def serve(binary, root):
    process = subprocess.Popen(
        [binary, "serve", "--model-repository", root, "--http-port", "0",
         "--grpc-port", "0", "--log-format", "json"],
        stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if json.loads(line).get("event") == "ready":
            port = json.loads(line)["http_port"]
            # The log goes on; a full pipe would stop the server.
            concurrent.futures.ThreadPoolExecutor(1).submit(
                process.stderr.read)
            return process, f"http://127.0.0.1:{port}"
    raise SystemExit("the server ended: " + "".join(lines))


def ask(url, model, body):
    request = urllib.request.Request(f"{url}/v1/tasks/{model}", body,
                                     {"Content-Type": "application/json"})
    begin = time.perf_counter()
    with urllib.request.urlopen(request, timeout=600) as answer:
        text = answer.read()
    return time.perf_counter() - begin, text


def computed(url, model):
    """Seconds that the graph has computed, both instances together."""
    with urllib.request.urlopen(url + "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if (line.startswith("millrace_compute_time_seconds_sum")
                    and f'model="{model}"' in line):
                return float(line.rsplit(" ", 1)[1])
    return 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", nargs="?",
                        default="build/release/bin/millrace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pictures", type=int, default=32)
    parser.add_argument("--side", type=int, nargs="*", default=[512, 1024, 2048])
    parser.add_argument("--width", type=float, default=1.0)
    args = parser.parse_args()
    root = pathlib.Path(tempfile.mkdtemp())
    model = resnet50(args.width)
    for name, config in FORMS.items():
        (root / name / "1").mkdir(parents=True)
        onnx.save(model, root / name / "1" / "model.onnx")
        (root / name / "config.yaml").write_text(config(args.pictures))
    server, url = serve(args.binary, root)
    try:
        for side in args.side:
            body = json.dumps({"inputs": [
                base64.b64encode(jpeg(side, i)).decode()
                for i in range(args.pictures)]}).encode()
            answers = {name: ask(url, name, body)[1] for name in FORMS}
            assert len(set(answers.values())) == 1, "the answers differ"
            times = {name: [] for name in FORMS}
            compute = computed(url, "sequence")
            for _ in range(args.rounds):
                for name in FORMS:
                    times[name].append(ask(url, name, body)[0])
            compute = computed(url, "sequence") - compute
            share = 1 - compute / sum(times["sequence"])
            rates = {name: args.pictures / statistics.median(each)
                     for name, each in times.items()}
            print(f"{side} x {side} pixels, {len(body) >> 10} KiB a request, "
                  f"{share:.0%} of the sequence's time is not the graph's")
            for name, rate in rates.items():
                worst, best = max(times[name]), min(times[name])
                print(f"  {name:9} {rate:8.2f} pictures/s "
                      f"({args.pictures / worst:.2f} to "
                      f"{args.pictures / best:.2f})")
            for name in ("sequence", "without"):
                print(f"  pipeline / {name}: "
                      f"{rates['pipeline'] / rates[name]:.2f}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
