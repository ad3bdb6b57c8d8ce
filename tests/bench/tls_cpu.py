#!/usr/bin/env python3
"""What TLS costs the server's threads, where the machine is too busy to time
streams: CPU time of the threads that read and write sockets, for each token.

    tests/bench/tls_cpu.py [ROUNDS]     BIN names the folder of both programs,
                                      STREAMS and TOKENS the load

16 streams of 32 tokens unless told, with TLS and without, by turns. Scheduling
does not count: the kernel adds up what each thread ran
(/proc/PID/task/TID/schedstat).
"""
import collections
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN", REPO / "build/release/bin"))
MODEL = pathlib.Path.home() / ".cache/millrace/models" / \
    "SmolLM2-135M-Instruct.Q4_1.gguf"
STREAMS = int(os.environ.get("STREAMS", 16))
TOKENS = int(os.environ.get("TOKENS", 32))


def serve(*flags):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [BIN / "millrace", "serve", f"llm={MODEL}", "--grpc-port", "-1",
         "--http-port", str(port), "--log-level", "warning", *flags])
    return server, port


def thread_seconds(pid):
    """By the threads' names, without their numbers."""
    total = collections.Counter()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip().rstrip("0123456789-/")
        total[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return total


def load(url, certificate, num):
    subprocess.run(
        [BIN / "millrace-loadtest", "--url", url, "--cacert", certificate,
         "--model", "llm", "--streaming", "--concurrency", str(STREAMS), "-n",
         str(num), "--input-tokens", "16", "--output-tokens", str(TOKENS),
         "--no-progress"], check=True, stdout=subprocess.DEVNULL)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/cert.pem", f"{folder}/key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", key, "-out", certificate], check=True,
            stderr=subprocess.DEVNULL)
        servers = {"plain": serve(),
                   "TLS": serve("--ssl-certfile", certificate, "--ssl-keyfile",
                                key)}
        try:
            spent = {name: collections.defaultdict(list) for name in servers}
            for i in range(-1, rounds):
                for name, (server, port) in servers.items():
                    scheme = "https" if name == "TLS" else "http"
                    while i < 0 and subprocess.run(
                            [BIN / "millrace", "health", "--url",
                             f"{scheme}://localhost:{port}", "--insecure"],
                            stderr=subprocess.DEVNULL).returncode:
                        time.sleep(0.2)
                    before = thread_seconds(server.pid)
                    load(f"{scheme}://localhost:{port}", certificate, STREAMS)
                    after = thread_seconds(server.pid)
                    if i < 0:
                        continue  # warm
                    for thread in after:
                        spent[name][thread].append(
                            (after[thread] - before[thread]) * 1e6 /
                            (STREAMS * TOKENS))
        finally:
            for server, _ in servers.values():
                server.terminate()
            for server, _ in servers.values():
                server.wait()
    print("microseconds of CPU for each token, medians (least to most)")
    for thread in sorted(spent["TLS"]):
        print(f"{thread:16}" + "".join(
            f"  {name} {statistics.median(values[thread]):8.1f} "
            f"({min(values[thread]):.1f} to {max(values[thread]):.1f})"
            for name, values in spent.items()))


if __name__ == "__main__":
    main()
