#!/usr/bin/env python3
"""Writes a model repository that reads text in pictures: the three graphs of PP-OCR v4
and an ensemble around them.

    pip install onnx numpy opencv-python-headless pyclipper
    pip install --no-deps rapidocr_onnxruntime       # where the graphs come from
    python3 handlers/external/examples/ocr/make_ocr.py models
    millrace serve --model-repository models

Takes picture UINT8 [bytes of the file], as tests/conformance/ocr/rapidocr.py sends it.

Answers with text UINT8 (UTF-8, a line for each), scores FP32 [lines] and places FP32
[lines, 4, 2]; with none of them where the picture has no text.
"""
import importlib.util
import pathlib
import shutil
import sys

import onnx

STEPS = pathlib.Path(__file__).resolve().parent / "ocr_steps.py"
GRAPHS = {"ocr_detect": "ch_PP-OCRv4_det_infer.onnx",
          "ocr_turned": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
          "ocr_recognise": "ch_PP-OCRv4_rec_infer.onnx"}
ENSEMBLE = """\
ensemble:
  inputs: [picture]
  outputs: [text, scores, places]
  steps:
    - model: ocr_read
      inputs: {picture: picture}
      outputs: {image: image, place: place, x: x}
    - model: ocr_detect
      inputs: {x: x}
      outputs: {MAP: map}
    - model: ocr_crop
      inputs: {image: image, place: place, map: map}
      outputs: {lines: lines, sizes: sizes, boxes: boxes, count: count}
    - model: ocr_write
      inputs: {lines: lines, sizes: sizes, boxes: boxes}
      outputs: {text: text, scores: scores, places: places}
      when: count > 0
"""


def write(root, python="python3"):
    """The repository; `python` has what ocr_steps.py imports."""
    root = pathlib.Path(root)
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    package = pathlib.Path(found.submodule_search_locations[0]) / "models"
    for name, file in GRAPHS.items():
        (root / name / "1").mkdir(parents=True)
        shutil.copy(package / file, root / name / "1" / "model.onnx")
    for step in ("read", "crop", "write"):
        folder = root / f"ocr_{step}" / "1"
        folder.mkdir(parents=True)
        shutil.copy(STEPS, folder)
        (folder.parent / "config.yaml").write_text(
            f"external:\n  command: [{python}, ocr_steps.py, {step}]\n"
            "  memory_limit: 2GiB\n")
    recogniser = onnx.load(package / GRAPHS["ocr_recognise"])
    keys = next(p.value for p in recogniser.metadata_props if p.key == "character")
    (root / "ocr_write" / "1" / "keys.txt").write_text(keys.rstrip("\n"), "utf-8")
    detector = onnx.load(package / GRAPHS["ocr_detect"])
    (root / "ocr" / "1").mkdir(parents=True)
    (root / "ocr" / "config.yaml").write_text(
        ENSEMBLE.replace("MAP", detector.graph.output[0].name))


if __name__ == "__main__":
    write(sys.argv[1])
