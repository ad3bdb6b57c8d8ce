#!/usr/bin/env python3
"""Text in pictures: the ensemble of handlers/external/examples/ocr beside RapidOCR with
ONNX Runtime. Not part of the gate.

    pip install onnx onnxruntime numpy opencv-python-headless pyclipper shapely pyyaml
    pip install --no-deps rapidocr_onnxruntime
    tests/conformance/ocr/rapidocr.py PICTURES... [--binary build/release/bin/millrace]

PICTURES are files or folders, e.g. python/tests/test_files of RapidOCR's sources. Texts
must be the same, boxes within a pixel, scores within 0.05: a line that is cut a pixel
beside is another picture.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy as np
from rapidocr_onnxruntime import RapidOCR

REPO = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPO / "handlers/external/examples/ocr"))
import make_ocr  # noqa: E402


def ask(url, file):
    head = json.dumps({"inputs": [
        {"name": "picture", "datatype": "UINT8", "shape": [len(file)],
         "parameters": {"binary_data_size": len(file)}}],
        "parameters": {"binary_data_output": True}}).encode()
    request = urllib.request.Request(
        url + "/v2/models/ocr/infer", head + file,
        {"Inference-Header-Content-Length": str(len(head))})
    with urllib.request.urlopen(request, timeout=120) as answer:
        body = answer.read()
        size = int(answer.headers.get("Inference-Header-Content-Length") or len(body))
    found, at = {}, size
    for output in json.loads(body[:size])["outputs"]:
        end = at + output["parameters"]["binary_data_size"]
        dtype = np.uint8 if output["datatype"] == "UINT8" else np.float32
        found[output["name"]] = np.frombuffer(body[at:end], dtype).reshape(output["shape"])
        at = end
    if "text" not in found or not len(found["scores"]):
        return []
    texts = found["text"].tobytes().decode().split("\n")
    return list(zip(found["places"], texts, found["scores"], strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pictures", nargs="+", type=pathlib.Path)
    parser.add_argument("--binary", default=REPO / "build/release/bin/millrace")
    args = parser.parse_args()
    files = [f for p in args.pictures for f in (sorted(p.iterdir()) if p.is_dir() else [p])]
    peer = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)
    with tempfile.TemporaryDirectory() as root, socket.socket() as free:
        make_ocr.write(root, sys.executable)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        server = subprocess.Popen(
            [args.binary, "serve", "--model-repository", root, "--http-port", str(port),
             "--grpc-port", "0", "--log-level", "warning"],
            env={**os.environ, "MILLRACE_HANDLERS": str(REPO / "handlers/external/python")})
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(url + "/v2/models/ocr/ready", timeout=5)
                    break
                except (urllib.error.URLError, OSError):
                    time.sleep(0.2)
            wrong = compare(url, peer, files)
        finally:
            server.terminate()
            server.wait()
    sys.exit(1 if wrong else 0)


def compare(url, peer, files):
    wrong = num_lines = 0
    spread, off = 0.0, 0.0
    for file in files:
        want = peer(str(file))[0] or []
        got = ask(url, file.read_bytes())
        texts = [line[1] for line in got]
        if texts != [line[1] for line in want]:
            wrong += 1
            print(f"{file.name}: {texts}\n  RapidOCR: {[line[1] for line in want]}",
                  flush=True)
            continue
        num_lines += len(want)
        for (box, _, score), (their_box, _, their_score) in zip(got, want):
            off = max(off, float(np.abs(box - np.array(their_box)).max()))
            spread = max(spread, abs(float(score) - their_score))
    print(f"{len(files)} pictures, {wrong} with other texts; {num_lines} lines alike, boxes "
          f"{off:.2f} pixels apart at most, scores {spread:.1e}")
    return wrong or off > 1 or spread > 0.05


if __name__ == "__main__":
    main()
