#!/usr/bin/env python3
"""Whether a million wrong keys slow right ones: the time of requests with a right
key before, and after, and the memory of the server.

    tests/bench/wrong_keys.py [--binary FILE] [--wrong N] [--rounds N]

A round sends N / rounds wrong keys, each another one, pipelined over a kept
connection, then asks with the right key. All is answered by GET /v1/models of a
server with a small graph; 100 keys stand in its file. Prints medians and p99.
"""
import argparse
import http.client
import os
import pathlib
import secrets
import socket
import statistics
import subprocess
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BATCH = 100  # requests that are written at once
ASKED = 2000  # with the right key, in a round


def start(binary, folder):
    text = "keys:\n"
    for i in range(100):
        made = subprocess.run([binary, "keys", "create", "--id", f"k{i}"],
                              capture_output=True, text=True, check=True)
        text += made.stdout
    keys = pathlib.Path(folder, "keys.yaml")
    keys.write_text(text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = open(pathlib.Path(folder, "log"), "wb")
    server = subprocess.Popen(
        [binary, "serve", f"mlp={REPO}/tests/data/graph/mlp.onnx",
         "--http-port", str(port), "--grpc-port", "-1", "--api-keys-file",
         keys], stderr=log)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, port, made.stderr.strip()
        except OSError:
            time.sleep(0.05)


def send_wrong(port, count):
    """Requests a second."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as wire:
        for _ in range(count // BATCH):
            wire.sendall(b"".join(
                b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                b"mr_%s\r\n\r\n" % secrets.token_urlsafe(32).encode()
                for _ in range(BATCH)))
            left, tail = BATCH, b""
            while left:
                piece = wire.recv(1 << 16)
                if not piece:
                    raise SystemExit("the server closed the connection")
                tail += piece
                left -= tail.count(b"HTTP/1.1 401")
                tail = tail[-11:] if not tail.endswith(b"401") else b""
    return count / (time.monotonic() - began)


def ask_right(port, key):
    """Microseconds of each request."""
    wire = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    for _ in range(ASKED):
        began = time.perf_counter()
        wire.request("GET", "/v1/models", headers={"x-api-key": key})
        answer = wire.getresponse()
        answer.read()
        times.append((time.perf_counter() - began) * 1e6)
        assert answer.status == 200
    wire.close()
    return times


def resident_mib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=os.environ.get(
        "MILLRACE_BINARY", str(REPO / "build/release/bin/millrace")))
    parser.add_argument("--wrong", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server, port, key = start(options.binary, folder)
        try:
            time.sleep(1)
            ask_right(port, key)  # warm
            before = [ask_right(port, key) for _ in range(options.rounds)]
            memory = resident_mib(server.pid)
            after = []
            for i in range(options.rounds):
                rate = send_wrong(port, options.wrong // options.rounds)
                after.append(ask_right(port, key))
                print(f"round {i}: {rate:,.0f} wrong keys/s, then right ones "
                      f"p50 {statistics.median(after[-1]):.0f} us", flush=True)
            grown = resident_mib(server.pid) - memory
        finally:
            server.kill()
            server.wait()
    def of(rounds, share):
        return statistics.median(sorted(times)[int(len(times) * share)]
                                 for times in rounds)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        print(f"right keys {name}: before {of(before, share):.0f} us, after "
              f"{options.wrong:,} wrong ones {of(after, share):.0f} us, ratio "
              f"{of(after, share) / of(before, share):.3f}")
    for name, rounds in (("before", before), ("after", after)):
        middles = [statistics.median(times) for times in rounds]
        print(f"p50 of the rounds {name}: {min(middles):.0f} to "
              f"{max(middles):.0f} us")
    print(f"memory {memory:.0f} MiB, grown by {grown:.1f}")


if __name__ == "__main__":
    main()
