#!/usr/bin/env python3
"""Embeddings of a running server beside transformers on the same folder: the
least cosine over texts of many lengths and scripts.

    millrace serve path/to/all-MiniLM-L6-v2 &
    python3 tests/bench/encoders.py path/to/all-MiniLM-L6-v2 [URL]

Needs torch and transformers; mean pooling, vectors of length 1.
"""
import json
import pathlib
import sys
import time
import urllib.request

import torch
from transformers import AutoModel, AutoTokenizer

LIMIT = 256
TEXTS = json.loads((pathlib.Path(__file__).resolve().parents[1] /
                    "golden/text/word_pieces.json").read_text())["texts"]


def ask(url, model, texts):
    request = urllib.request.Request(
        url + "/v1/embeddings",
        json.dumps({"model": model, "input": texts,
                    "truncate_prompt_tokens": -1}).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return [d["embedding"] for d in json.load(answer)["data"]]


def main():
    folder = sys.argv[1].rstrip("/")
    url = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000"
    texts = TEXTS + [" ".join(TEXTS[20:24]) * n for n in range(1, 9)]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    ask(url, pathlib.Path(folder).name, texts)  # plans are made
    begun = time.monotonic()
    got = ask(url, pathlib.Path(folder).name, texts)
    ours = time.monotonic() - begun
    least, theirs = 1.0, 0.0
    with torch.no_grad():
        for text, row in zip(texts, got):
            inputs = tokenizer(text, truncation=True, max_length=LIMIT,
                               return_tensors="pt")
            begun = time.monotonic()
            want = model(**inputs).last_hidden_state[0].mean(0)
            theirs += time.monotonic() - begun
            least = min(least, torch.nn.functional.cosine_similarity(
                torch.tensor(row, dtype=torch.float64), want.double(),
                dim=0).item())
    print(f"{len(texts)} texts, least cosine {least:.9f}, "
          f"seconds {ours:.2f} (one request) and {theirs:.2f} (one by one)")


if __name__ == "__main__":
    main()
