#!/usr/bin/env python3
"""Writes graphs whose boxes and masks are the pixels themselves, and what is to come
of photo.jpg and turned.png behind PIL:

    yolo.onnx        [batch, 6, 128]: boxes and scores of two classes
    yolo_rows.onnx   the same, [batch, 128, 6]
    boxes.onnx       boxes [128, 4], scores [128], labels [128], of one picture
    segmenter.onnx   [batch, 4, 8, 8]: averages of the channels, and a constant
    detector.json    boxes of each case, by torchvision.ops.batched_nms
    segmenter.json   masks, by numpy and PIL

    pip install pillow numpy onnx onnxruntime torch torchvision
    tests/data/image/make_detector.py
"""
import json
import pathlib

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageOps
from torchvision.ops import batched_nms

HERE = pathlib.Path(__file__).parent
SIDE = 16
NAMES = ["cat", "score", "dog", "bird"]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CASES = [
    {"name": "letterbox", "graph": "yolo.onnx", "letterbox": True},
    {"name": "rows", "graph": "yolo_rows.onnx", "letterbox": True, "iou": 0.2},
    {"name": "stretched", "graph": "yolo.onnx", "score": 0.6, "most": 7},
    {"name": "agnostic", "graph": "yolo.onnx", "iou": 0.3, "agnostic": True},
    {"name": "boxes", "graph": "boxes.onnx", "letterbox": True, "score": 0.5},
]


def save(name, nodes, outputs, values, batch="batch"):
    made = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info(
            "pixels", FLOAT, [batch, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.array(v), k) for k, v in values.items()])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)],
                              ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, HERE / f"{name}.onnx")


def graphs():
    node = helper.make_node
    scale = np.array([16, 16, 9, 9, 1, 1], np.float32).reshape(1, 6, 1)
    yolo = [node("Reshape", ["pixels", "shape"], ["parts"]),
            node("Mul", ["parts", "scale"], ["boxes"])]
    values = {"shape": np.array([-1, 6, 128], np.int64), "scale": scale}
    save("yolo", yolo, [("boxes", FLOAT, ["batch", 6, 128])], values)
    save("yolo_rows", [*yolo, node("Transpose", ["boxes"], ["rows"],
                                   perm=[0, 2, 1])],
         [("rows", FLOAT, ["batch", 128, 6])], values)
    # x1, y1, width, height, score, class from six stretches of 128.
    save("boxes", [
        node("Reshape", ["pixels", "shape"], ["parts"]),
        node("Split", ["parts", "ones"], ["x", "y", "w", "h", "s", "c"], axis=0),
        node("Mul", ["x", "ten"], ["x1"]), node("Mul", ["y", "ten"], ["y1"]),
        node("Mul", ["w", "ten"], ["w1"]), node("Mul", ["h", "ten"], ["h1"]),
        node("Add", ["x1", "w1"], ["x2"]), node("Add", ["y1", "h1"], ["y2"]),
        node("Concat", ["x1", "y1", "x2", "y2"], ["columns"], axis=0),
        node("Transpose", ["columns"], ["boxes"], perm=[1, 0]),
        node("Reshape", ["s", "flat"], ["scores"]),
        node("Reshape", ["c", "flat"], ["part"]),
        node("Mul", ["part", "four"], ["class"]),
        node("Cast", ["class"], ["labels"], to=INT64)],
        [("labels", INT64, [128]), ("boxes", FLOAT, [128, 4]),
         ("scores", FLOAT, [128])],
        {"shape": np.array([6, 128], np.int64), "ones": np.ones(6, np.int64),
         "ten": np.float32(10), "four": np.float32(3.99),
         "flat": np.array([-1], np.int64)}, batch=1)
    save("segmenter", [
        node("AveragePool", ["pixels"], ["means"], kernel_shape=[2, 2],
             strides=[2, 2]),
        node("ReduceMax", ["means"], ["most"], axes=[1], keepdims=1),
        node("Mul", ["most", "zero"], ["none"]),
        node("Add", ["none", "half"], ["rest"]),
        node("Concat", ["means", "rest"], ["logits"], axis=1)],
        [("logits", FLOAT, ["batch", 4, SIDE // 2, SIDE // 2])],
        {"zero": np.float32(0), "half": np.float32(0.45)})


def resized(image, size):
    """Across first, then down: newer releases of Pillow choose the order."""
    return image.resize((size[0], image.height), Image.BILINEAR).resize(
        size, Image.BILINEAR)


def read(path, letterbox):
    """The input, the picture's size, and where it lies."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    width, height = image.size
    if not letterbox:
        small, left, top = resized(image, (SIDE, SIDE)), 0, 0
    else:
        scale = min(SIDE / width, SIDE / height)
        inner = resized(image, (round(width * scale), round(height * scale)))
        left, top = (SIDE - inner.width) // 2, (SIDE - inner.height) // 2
        small = Image.new("RGB", (SIDE, SIDE), (114, 114, 114))
        small.paste(inner, (left, top))
    inner_size = inner.size if letterbox else (SIDE, SIDE)
    pixels = np.asarray(small).astype(np.float32) / 255
    return pixels.transpose(2, 0, 1)[None], (width, height), inner_size, (left, top)


def detect(case, path):
    pixels, size, inner, (left, top) = read(path, case.get("letterbox"))
    session = onnxruntime.InferenceSession(HERE / case["graph"])
    outputs = dict(zip([o.name for o in session.get_outputs()],
                       session.run(None, {"pixels": pixels})))
    least = case.get("score", 0.25)
    if "scores" in outputs:
        boxes, scores, classes = (torch.tensor(outputs[n]) for n in
                                  ("boxes", "scores", "labels"))
        keep = torch.argsort(scores, descending=True, stable=True)
        keep = keep[scores[keep] >= least]
    else:
        rows = outputs.get("rows")
        rows = torch.tensor(rows[0] if rows is not None else outputs["boxes"][0].T)
        scores, classes = rows[:, 4:].max(1)
        centre, half = rows[:, :2], rows[:, 2:4] / 2
        boxes = torch.cat([centre - half, centre + half], 1)
        wanted = torch.nonzero(scores >= least)[:, 0]
        groups = torch.zeros_like(classes) if case.get("agnostic") else classes
        keep = wanted[batched_nms(boxes[wanted], scores[wanted], groups[wanted],
                                  case.get("iou", 0.45))]
    keep = keep[:case.get("most", 300)]
    boxes = boxes.double().numpy()
    answer = []
    for i in keep.tolist():
        x1, y1, x2, y2 = boxes[i]
        xs = np.clip((np.array([x1, x2]) - left) * size[0] / inner[0], 0, size[0])
        ys = np.clip((np.array([y1, y2]) - top) * size[1] / inner[1], 0, size[1])
        name = NAMES[int(classes[i])]
        answer.append({name + (" (1)" if name == "score" else ""):
                       [xs[0], ys[0], xs[1], ys[1]], "score": float(scores[i])})
    return answer


def segment(path, letterbox):
    """Rows of the mask, each pixel the class at its centre."""
    pixels, (width, height), inner, (left, top) = read(path, letterbox)
    session = onnxruntime.InferenceSession(HERE / "segmenter.onnx")
    classes = session.run(None, {"pixels": pixels})[0][0].argmax(0)
    x = (np.arange(width) + 0.5) * inner[0] / width + left
    y = (np.arange(height) + 0.5) * inner[1] / height + top
    return classes[np.floor(y / 2).astype(int)[:, None],
                   np.floor(x / 2).astype(int)[None]].tolist()


if __name__ == "__main__":
    graphs()
    pictures = ["photo.jpg", "turned.png"]
    (HERE / "detector.json").write_text(json.dumps(
        {case["name"]: {**case, "answers": {
            p: detect(case, HERE / p) for p in pictures}} for case in CASES}) + "\n")
    (HERE / "segmenter.json").write_text(json.dumps(
        {p: {"stretched": segment(HERE / p, False),
             "letterbox": segment(HERE / p, True)} for p in pictures}) + "\n")
