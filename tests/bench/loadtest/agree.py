#!/usr/bin/env python3
"""millrace-loadtest beside aiperf and a client on aiohttp, in turns, with the
same prompts against the same server: figures of each and how far they are apart.

    agree.py [--rounds 3] [--users 2] [--count 60] [--tokens 64] [--words 200]
    agree.py --fake      against the server of calibrated.py, which takes hardly
                         any CPU time; as root, ahead of other work on the machine

Needs aiperf and aiohttp in the Python that runs it. The server gets the first
core, the clients the last one.
"""
import argparse
import itertools
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import calibrated  # noqa: E402
import clients  # noqa: E402

REPO = clients.REPO
sys.path.insert(0, str(REPO / "tests/e2e"))
WORDS = ("the of and to in is that for it as was with be by on not he this are "
         "or his from at which but have an had they you were their one all we "
         "can her has there been if more when will would who so no out").split()


def serve(port, cpu):
    cache = pathlib.Path(os.environ.get(
        "MILLRACE_CACHE", pathlib.Path.home() / ".cache/millrace"))
    model = cache / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
    server = subprocess.Popen(
        ["taskset", "-c", str(cpu), REPO / "build/release/bin/millrace",
         "serve", model, "--http-port", str(port), "--grpc-port", "-1",
         "--threads", "1", "--log-level", "warning"])
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
            return server, model.stem
        except OSError:
            time.sleep(0.1)
    sys.exit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--users", type=int, default=2)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--clients", default="loadtest,aiperf,own")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    fake = server = None
    if options.fake:
        if os.geteuid() == 0:
            os.nice(-10)
        fake = calibrated.Server(("127.0.0.1", 0), calibrated.Calibrated)
        threading.Thread(target=fake.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{fake.server_address[1]}"
        model, options.tokens = "calibrated", 1 + calibrated.MORE
    else:
        url = "http://127.0.0.1:8097"
        server, model = serve(8097, cores[0])
    print(subprocess.run(["lscpu"], capture_output=True, text=True).stdout
          .split("Model name:")[1].split("\n")[0].strip(),
          f"{len(cores)} CPUs; {options.users} users, {options.count} requests "
          f"of {options.words} words, {options.tokens} tokens out, "
          f"{options.rounds} rounds")
    figures = {name: [] for name in options.clients.split(",")}
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            for number in range(options.rounds):
                order = list(figures)
                for name in reversed(order) if number % 2 else order:
                    # New prompts each time: a prefix cache knows none of them.
                    rnd = random.Random(f"{number} {name}")
                    dataset = work / "prompts.jsonl"
                    clients.write_dataset(dataset, [
                        " ".join(rnd.choices(WORDS, k=options.words))
                        for _ in range(options.count + options.users)])
                    calibrated.Calibrated.numbers = itertools.count()
                    figures[name].append(getattr(clients, name)(
                        url, model, dataset, work, options.users,
                        options.count, options.tokens, cores[-1]))
    finally:
        if server:
            server.terminate()
            server.wait()
        if fake:
            fake.shutdown()
    print(f"{'':14}" + "".join(f"{name:>28}" for name in figures))
    for key in figures["loadtest"][0]:
        line = f"{key:14}"
        ours = statistics.median(run[key] for run in figures["loadtest"])
        for name, runs in figures.items():
            values = [run[key] for run in runs if key in run]
            if not values:
                line += f"{'-':>28}"
                continue
            middle = statistics.median(values)
            line += (f"{middle:10.2f} ({min(values):.2f}-{max(values):.2f})"
                     f" {100 * (ours / middle - 1):+.1f}%").rjust(28)
        print(line)


if __name__ == "__main__":
    main()
