#!/usr/bin/env python3
"""Percentiles of millrace-loadtest beside the delays of a server that knows them:
request i of 300 waits 200 + i ms for its first token and 100 ms for
each of four more. Prints how far the report is from these delays, and from the
moments at which the server really sent; ends with 1 when a mean or percentile is
more than 1 % from the latter.

    calibrated.py [--users 8]

As root, server and client run before all that is not of real time, so that other
work on the machine does not lengthen the delays.
"""
import argparse
import itertools
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import clients  # noqa: E402

sys.path.insert(0, str(clients.REPO / "tests/e2e"))
from fake_llm import STREAM, event, token  # noqa: E402

FIRST = 0.200 + 0.001 * np.arange(300)
GAP, MORE = 0.100, 4
USAGE = json.dumps({"object": "chat.completion.chunk", "choices": [],
                    "usage": {"prompt_tokens": 5, "completion_tokens": 1 + MORE,
                              "total_tokens": 6 + MORE}})


class Calibrated(socketserver.StreamRequestHandler):
    """A thread a connection, whose sleeps end within a tenth of a millisecond."""
    disable_nagle_algorithm = True
    rbufsize = 1 << 16
    numbers = itertools.count()
    sent = []  # of each request: when it came, when its tokens left, in seconds

    def handle(self):
        while True:
            length = 0
            line = self.rfile.readline()
            if not line:
                return
            begun = time.monotonic()
            while line not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                line = self.rfile.readline()
            self.rfile.read(length)
            if length == 0:
                self.wfile.write(b"HTTP/1.1 404 Not Found\r\n"
                                 b"Content-Length: 0\r\n\r\n")
                continue
            due = begun + FIRST[next(self.numbers) % len(FIRST)]
            times = [begun]
            for i in range(1 + MORE):
                time.sleep(max(0, due - time.monotonic()))
                self.wfile.write((STREAM if i == 0 else b"") + token("one "))
                times.append(time.monotonic())
                due += GAP  # what is late does not add up
            self.wfile.write(event(USAGE) + event("[DONE]") + b"0\r\n\r\n")
            self.sent.append(times)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--users", type=int, default=8)
    options = parser.parse_args()
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        print("not root: other work on the machine may lengthen delays")
    with Server(("127.0.0.1", 0), Calibrated) as server, \
            tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        dataset = pathlib.Path(folder) / "prompts.jsonl"
        clients.write_dataset(dataset, ["hello"])
        out = pathlib.Path(folder) / "report.json"
        subprocess.run([clients.LOADTEST, "--url",
                        f"http://127.0.0.1:{server.server_address[1]}", "-m",
                        "calibrated", "--streaming", "--concurrency",
                        str(options.users), "-n", str(len(FIRST)), "--no-progress",
                        "--dataset", dataset, "--json", out], check=True,
                       stdout=subprocess.DEVNULL)
        report = json.loads(out.read_text())
        server.shutdown()
    times = np.array(Calibrated.sent)
    worst = {}
    for title, first, gaps, whole in (
            ("as wanted", FIRST, np.full(len(FIRST), GAP), FIRST + MORE * GAP),
            ("as sent", times[:, 1] - times[:, 0], np.diff(times[:, 1:]).ravel(),
             times[:, -1] - times[:, 0])):
        print(title)
        worst[title] = 0
        for key, values in (("time_to_first_token_ms", first),
                            ("inter_token_latency_ms", gaps),
                            ("request_latency_ms", whole)):
            told = {"mean": values.mean()}
            for percent in (50, 90, 95, 99):
                told[f"p{percent}"] = np.percentile(values, percent,
                                                    method="inverted_cdf")
            line = f"  {key:24}"
            for name, seconds in told.items():
                off = report[key][name] / (1000 * seconds) - 1
                worst[title] = max(worst[title], abs(off))
                line += f" {name} {1000 * seconds:.1f} {100 * off:+.2f}%"
            print(line)
    print("largest deviations: " + ", ".join(
        f"{100 * off:.2f} % {title}" for title, off in worst.items()))
    return 0 if worst["as sent"] <= 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
