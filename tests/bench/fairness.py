#!/usr/bin/env python3
"""How much one tenant's flood delays another tenant's first token.

    tests/bench/fairness.py [--binary FILE] [--rounds N] [--requests N]
                            [--flood N] [--prompt-words N] [-- FLAGS…]

A quiet tenant sends one chat after another, with pauses, and the time to each
first token is taken: alone, then beside a tenant that always has `--flood`
requests of 128 tokens under way. By turns; prints p50 and p99 of both and their
ratio. Prompts differ from their first word, so that no cache helps. FLAGS go to
the server.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
MODEL = pathlib.Path.home() / ".cache/millrace/models" / \
    "SmolLM2-135M-Instruct.Q4_1.gguf"
WORDS = ("river mill stone water wheel grain flour sack cart road bridge town "
         "market bread oven fire smoke wind rain field").split()


def start(binary, folder, flags):
    keys, text = [], "tenants: {flood: {}, quiet: {}}\nkeys:\n"
    for tenant in ("flood", "quiet"):
        made = subprocess.run(
            [binary, "keys", "create", "--id", tenant, "--tenant", tenant],
            capture_output=True, text=True, check=True)
        keys.append(made.stderr.strip())
        text += made.stdout
    path = pathlib.Path(folder, "keys.yaml")
    path.write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [binary, "serve", f"llm={MODEL}", "--http-port", str(port),
         "--grpc-port", "-1", "--api-keys-file", path, *flags],
        stderr=open(pathlib.Path(folder, "log"), "wb"))
    while True:
        try:
            wire = http.client.HTTPConnection("127.0.0.1", port)
            wire.request("GET", "/health")
            if wire.getresponse().status == 200:
                return server, port, keys
        except OSError:
            pass
        time.sleep(0.05)


def body(rng, words, tokens, stream):
    text = " ".join(rng.choice(WORDS) for _ in range(words))
    return json.dumps({
        "model": "llm", "max_tokens": tokens, "ignore_eos": True,
        "stream": stream, "messages": [{"role": "user", "content": text}]})


def post(wire, key, text):
    wire.request("POST", "/v1/chat/completions", text, {
        "Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    return wire.getresponse()


class Flood:
    def __init__(self, port, key, count, words):
        self.over, self.ended = threading.Event(), 0
        self.threads = [threading.Thread(target=self.run, args=(
            port, key, words, random.Random(i))) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, port, key, words, rng):
        wire = http.client.HTTPConnection("127.0.0.1", port)
        while not self.over.is_set():
            answer = post(wire, key, body(rng, words, 128, False))
            answer.read()
            if answer.status == 200:
                self.ended += 1
            else:
                time.sleep(0.2)  # less than it is told to wait

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def first_tokens(port, key, count, words, rng):
    """Milliseconds to the first piece of text."""
    wire, times = http.client.HTTPConnection("127.0.0.1", port), []
    for _ in range(count):
        text = body(rng, words, 4, True)
        began = time.perf_counter()
        answer = post(wire, key, text)
        assert answer.status == 200, answer.read()
        while b'"content":"' not in (line := answer.readline()) or \
                b'"content":""' in line:
            assert line
        times.append((time.perf_counter() - began) * 1e3)
        answer.read()
        time.sleep(rng.uniform(0.02, 0.1))
    return times


def p99(times):
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=os.environ.get(
        "MILLRACE_BINARY", str(REPO / "build/release/bin/millrace")))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--flood", type=int, default=16)
    parser.add_argument("--prompt-words", type=int, default=200)
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    alone, beside = [], []
    with tempfile.TemporaryDirectory() as folder:
        server, port, (flood_key, quiet_key) = start(options.binary, folder,
                                                     options.flags)
        try:
            rng = random.Random(7)
            quiet = (port, quiet_key, options.requests, options.prompt_words,
                     rng)
            first_tokens(port, quiet_key, 5, options.prompt_words, rng)
            for i in range(options.rounds):
                alone.append(first_tokens(*quiet))
                flood = Flood(port, flood_key, options.flood,
                              options.prompt_words)
                time.sleep(2)
                beside.append(first_tokens(*quiet))
                flood.stop()
                print(f"round {i}: alone p50 {statistics.median(alone[-1]):.1f}"
                      f" p99 {p99(alone[-1]):.1f} ms, beside a flood p50 "
                      f"{statistics.median(beside[-1]):.1f} p99 "
                      f"{p99(beside[-1]):.1f} ms ({flood.ended} of its "
                      "requests ended)", flush=True)
        finally:
            server.kill()
            server.wait()
    middle = statistics.median
    for name, of in (("p50", middle), ("p99", p99)):
        a, b = middle(map(of, alone)), middle(map(of, beside))
        print(f"{name}: alone {a:.1f} ms, beside a flood {b:.1f} ms, ratio "
              f"{b / a:.2f}")


if __name__ == "__main__":
    main()
