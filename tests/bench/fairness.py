#!/usr/bin/env python3
"""How much one tenant's flood delays another tenant's first token.

    tests/bench/fairness.py [--binary FILE]… [--rounds N] [--requests N]
                            [--flood N] [--prompt-words N] [-- FLAGS…]

A quiet tenant sends one chat after another, with pauses, and the time to each
first token is taken: alone, then beside a tenant that always has `--flood`
requests of 128 tokens under way, from a process of its own. Each round has a new
server, so that no flood was seen before; of several binaries each in every
round. Prompts differ from their first word, so that no cache helps. FLAGS go to
the server.

Each line tells what the client saw and what the server logged for the same
requests: the time to the first token, and of it the wait for the first step and
the steps of the prompt. `others` is the CPU time of all other programs, as a
part of one core: a round beside busy ones says nothing. The summary pools the
requests of all rounds.
"""
import argparse
import http.client
import json
import multiprocessing
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
TICK = 1 / os.sysconf("SC_CLK_TCK")
CLIENT = "client"
STAGES = {"ttft_s": "server", "queue_s": "queue", "prefill_s": "prompt"}


def body(rng, words, tokens, stream):
    text = " ".join(rng.choice(WORDS) for _ in range(words))
    return json.dumps({
        "model": "llm", "max_tokens": tokens, "ignore_eos": True,
        "stream": stream, "messages": [{"role": "user", "content": text}]})


def post(wire, key, text):
    wire.request("POST", "/v1/chat/completions", text, {
        "Content-Type": "application/json", "Authorization": f"Bearer {key}"})
    return wire.getresponse()


class Server:
    def __init__(self, binary, folder, flags):
        self.keys, text = {}, "tenants: {flood: {}, quiet: {}}\nkeys:\n"
        for tenant in ("flood", "quiet"):
            made = subprocess.run(
                [binary, "keys", "create", "--id", tenant, "--tenant", tenant],
                capture_output=True, text=True, check=True)
            self.keys[tenant] = made.stderr.strip()
            text += made.stdout
        path = pathlib.Path(folder, "keys.yaml")
        path.write_text(text)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        log = pathlib.Path(folder, "log")
        self.process = subprocess.Popen(
            [binary, "serve", f"llm={MODEL}", "--http-port", str(self.port),
             "--grpc-port", "-1", "--api-keys-file", path, "--log-format",
             "json", *flags], stderr=log.open("wb"))
        self.log = log.open()
        while True:
            try:
                wire = http.client.HTTPConnection("127.0.0.1", self.port)
                wire.request("GET", "/health")
                if wire.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)

    def logged(self):
        """Milliseconds of the quiet tenant's new requests, by stage."""
        time.sleep(0.3)  # lines are written behind the answers
        events = [json.loads(line) for line in self.log
                  if '"key":"quiet"' in line]
        return {name: [event[field] * 1e3 for event in events]
                for field, name in STAGES.items()}


class Flood:
    """The other tenant, in a process of its own."""

    def __init__(self, server, count, words):
        self.ended = multiprocessing.Value("i", 0)
        self.over = multiprocessing.Event()
        self.process = multiprocessing.Process(target=self.run, args=(
            server.port, server.keys["flood"], count, words), daemon=True)
        self.process.start()

    def run(self, port, key, count, words):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threads = [threading.Thread(target=self.ask, args=(
            port, key, words, random.Random(i))) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def ask(self, port, key, words, rng):
        wire = http.client.HTTPConnection("127.0.0.1", port)
        while not self.over.is_set():
            try:
                answer = post(wire, key, body(rng, words, 128, False))
                answer.read()
            except OSError:  # the server ended, and so does the benchmark
                return
            if answer.status == 200:
                with self.ended.get_lock():
                    self.ended.value += 1
            else:
                time.sleep(0.2)  # less than it is told to wait

    def stop(self):
        self.over.set()
        self.process.join()


def others_seconds(*processes):
    """CPU time of all other programs, the host's theft included."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n")[0].split()
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[1:9])
    ticks = user + nice + system + irq + softirq + steal
    for pid in [os.getpid(), *(process.pid for process in processes)]:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        ticks -= int(fields[11]) + int(fields[12])
    return ticks * TICK


def first_tokens(server, count, words, rng):
    """Milliseconds to the first piece of text."""
    wire, times = http.client.HTTPConnection("127.0.0.1", server.port), []
    for _ in range(count):
        text = body(rng, words, 4, True)
        began = time.perf_counter()
        answer = post(wire, server.keys["quiet"], text)
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


def text_of(times):
    return ", ".join(f"{name} {statistics.median(each):.1f}/{p99(each):.1f}"
                     for name, each in times.items())


def measure(server, options, rng, floods):
    """Times by stage; beside a flood, or alone."""
    flood, running = None, [server.process]
    if floods:
        flood = Flood(server, options.flood, options.prompt_words)
        running.append(flood.process)
        time.sleep(2)
        before = flood.ended.value
    server.logged()
    began, others = time.time(), others_seconds(*running)
    times = {CLIENT: first_tokens(server, options.requests,
                                  options.prompt_words, rng)}
    seconds = time.time() - began
    others = others_seconds(*running) - others
    what = "alone "
    if flood:
        ended = flood.ended.value - before
        what = f"beside {ended / seconds:.1f} of the flood a second "
        flood.stop()
    times |= server.logged()
    print(f"  {what}{text_of(times)} ms; others {others / seconds:.0%}",
          flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--flood", type=int, default=16)
    parser.add_argument("--prompt-words", type=int, default=200)
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    binaries = options.binary or [os.environ.get(
        "MILLRACE_BINARY", str(REPO / "build/release/bin/millrace"))]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = {}
    print("median/p99 of the time to the first token:")
    for i in range(options.rounds):
        for binary in binaries:
            print(f"round {i}, {binary}:")
            rng = random.Random(i)
            with tempfile.TemporaryDirectory() as folder:
                server = Server(binary, folder, options.flags)
                try:
                    first_tokens(server, 5, options.prompt_words, rng)
                    for floods in (False, True):
                        times = measure(server, options, rng, floods)
                        for name, each in times.items():
                            found.setdefault((binary, floods, name),
                                             []).append(each)
                finally:
                    server.process.kill()
                    server.process.wait()
    for binary in binaries:
        print(f"{binary}, requests of all rounds:")
        for name in (CLIENT, "server"):
            alone, beside = (found[binary, floods, name]
                             for floods in (False, True))
            for label, of in (("p50", statistics.median), ("p99", p99)):
                a, b = of(sum(alone, [])), of(sum(beside, []))
                ratios = " ".join(f"{of(y) / of(x):.2f}"
                                  for x, y in zip(alone, beside))
                print(f"  {name} {label}: alone {a:.1f} ms, beside the flood "
                      f"{b:.1f} ms, ratio {b / a:.2f} (rounds {ratios})")


if __name__ == "__main__":
    main()
