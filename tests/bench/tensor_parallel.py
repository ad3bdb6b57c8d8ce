#!/usr/bin/env python3
"""Two processes with one thread each beside one process with two threads.

    python3 tests/bench/tensor_parallel.py --model FILE|SHAPE [--millrace FILE]
        [--rounds N] [--module FILE]...

--model: a GGUF file whose heads two divides, or the name of a real shape that
llm/random_gguf.py fills with random weights (qwen2.5-0.5b, ...; needs gguf).
--module: libmillrace_mpi.so files to compare; by default the one beside the program.
Servers start by turns, one at a time; each answers a prompt of 512 tokens and then
128 tokens to one client. Prints tokens a second of both, medians of the rounds and
their range, the ratio to one process in the same round, and of a step's time the
share that sums over the ranks take (waiting for the other rank included).
"""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
PROMPT, OUTPUT = 512, 128


class Server:
    def __init__(self, launcher, binary, model, flags, env):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [*launcher, binary, "serve", f"m={model}", "--http-port",
             str(self._port), "--grpc-port", "-1", *flags],
            stderr=subprocess.DEVNULL, env={**os.environ, **env})
        for _ in range(1200):
            with contextlib.suppress(OSError):
                if self._ask("GET", "/health/ready")[0] == 200:
                    return
            if self._process.poll() is not None:
                raise SystemExit(f"millrace ended: {self._process.returncode}")
            time.sleep(0.05)
        raise SystemExit("millrace did not become ready within a minute")

    def _ask(self, method, path, body=None):
        wire = http.client.HTTPConnection("127.0.0.1", self._port)
        wire.request(method, path, body, {"Content-Type": "application/json"})
        answer = wire.getresponse()
        return answer.status, answer.read()

    def seconds(self, first, tokens):
        """Of an answer with so many tokens to a prompt of 512 ids."""
        begun = time.perf_counter()
        status, body = self._ask("POST", "/v1/completions", json.dumps({
            "model": "m", "prompt": [first, *range(300, 299 + PROMPT)],
            "max_tokens": tokens, "ignore_eos": True, "temperature": 0}))
        taken = time.perf_counter() - begun
        if (status != 200 or
                json.loads(body)["usage"]["completion_tokens"] != tokens):
            raise SystemExit(f"status {status}: {body[:500]}")
        return taken

    def phases(self):
        """Seconds of all phases, and of sums over the ranks."""
        total = sums = 0.0
        for line in self._ask("GET", "/metrics")[1].decode().splitlines():
            if line.startswith("millrace_step_phase_seconds_total{"):
                value = float(line.rsplit(" ", 1)[1])
                total += value
                sums += value if 'phase="all_reduce"' in line else 0
        return total, sums

    def stop(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def measure(server):
    """Prompt tokens/s, output tokens/s and the share of sums in either."""
    server.seconds(900, 8)
    before = server.phases()
    prompt = server.seconds(901, 1)
    between = server.phases()
    whole = server.seconds(902, OUTPUT + 1)
    # The third request's prompt costs what the second's did.
    after = server.phases()
    first = [b - a for a, b in zip(before, between)]
    rest = [b - a - f for a, b, f in zip(between, after, first)]
    return (PROMPT / prompt, OUTPUT / (whole - prompt), first[1] / first[0],
            rest[1] / rest[0])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--model", required=True)
    parser.add_argument("--millrace", default=REPO / "build/release/bin/millrace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--module", action="append", default=[])
    args = parser.parse_args()
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to",
              "none", "-np", "2")
    kinds = {"one process": ((), ("--threads", "2"), {})}
    for module in args.module or [None]:
        kinds[f"two processes, {module}" if module else "two processes"] = (
            mpirun, ("--threads", "1", "--tensor-parallel-size", "2"),
            {"MILLRACE_MPI_MODULE": module} if module else {})
    seen = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        model = args.model
        if not pathlib.Path(model).exists():
            from llm import random_gguf
            model = pathlib.Path(folder, "model.gguf")
            random_gguf.main(args.model, model)
        for _ in range(args.rounds):
            for kind, (launcher, flags, env) in kinds.items():
                server = Server(launcher, args.millrace, model, flags, env)
                try:
                    seen[kind].append(measure(server))
                finally:
                    server.stop()
    for kind, rows in seen.items():
        print(kind)
        for i, work in enumerate(("prompt", "decode")):
            rates = [row[i] for row in rows]
            ratio = statistics.median(
                row[i] / one[i] for row, one in zip(rows, seen["one process"]))
            share = statistics.median(row[2 + i] for row in rows)
            print(f"  {work}: {statistics.median(rates):.1f} tokens/s "
                  f"({min(rates):.1f} to {max(rates):.1f}), {ratio:.3f} of one "
                  f"process, sums {100 * share:.1f} % of a step", flush=True)


if __name__ == "__main__":
    main()
