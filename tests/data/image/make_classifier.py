#!/usr/bin/env python3
"""Writes classifier.onnx, a tiny network of random weights over pictures of 8 x 8,
index_to_name.json, photo.jpg, turned.png, and classifier.json: what onnxruntime
answers for them behind PIL.

    pip install pillow numpy onnx onnxruntime
    tests/data/image/make_classifier.py
"""
import io
import json
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).parent
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
NAMES = {"0": "cat", "1": ["n02085620", "Chihuahua"], "2": "crane", "3": "crane"}


def graph():
    draw = np.random.default_rng(11)
    kernel = draw.normal(size=(4, 3, 3, 3)).astype(np.float32)
    weights = draw.normal(size=(4 * 9, 5)).astype(np.float32) / 4
    nodes = [
        helper.make_node("Conv", ["pixels", "kernel"], ["felt"], "conv",
                         strides=[2, 2]),
        helper.make_node("Relu", ["felt"], ["positive"], "relu"),
        helper.make_node("Flatten", ["positive"], ["flat"], "flatten"),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"], "head")]
    made = helper.make_graph(
        nodes, "classifier",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT,
                                       ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT,
                                       ["batch", 5])],
        [numpy_helper.from_array(kernel, "kernel"),
         numpy_helper.from_array(weights, "weights")])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)],
                              ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, HERE / "classifier.onnx")


def pixels(path):
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    width, height = image.size
    shorter = 10
    if width <= height:
        size = (shorter, int(shorter * height / width))
    else:
        size = (int(shorter * width / height), shorter)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (round((side - 8) / 2) for side in image.size)
    image = image.crop((left, top, left + 8, top + 8))
    value = (np.asarray(image).astype(np.float32) / 255 - MEAN) / STD
    return value.transpose(2, 0, 1)[None]


def pictures():
    y, x = np.mgrid[0:48, 0:64]
    colors = np.stack([x * 4, y * 5, (x * y) % 256], axis=-1).astype(np.uint8)
    image = Image.fromarray(colors)
    image.save(HERE / "photo.jpg", quality=90)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.resize((24, 17)).save(HERE / "turned.png", exif=exif)


def main():
    graph()
    pictures()
    (HERE / "index_to_name.json").write_text(json.dumps(NAMES))
    session = onnxruntime.InferenceSession(HERE / "classifier.onnx")
    answers = {}
    for name in ("photo.jpg", "turned.png"):
        logits = session.run(None, {"pixels": pixels(HERE / name)})[0][0]
        shares = np.exp(logits - logits.max())
        answers[name] = {"logits": logits.tolist(),
                         "softmax": (shares / shares.sum()).tolist()}
    (HERE / "classifier.json").write_text(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
