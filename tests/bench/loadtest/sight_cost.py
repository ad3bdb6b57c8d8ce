#!/usr/bin/env python3
"""What it costs that the server shows itself: tokens/s with metrics beside the
same binary whose counters do nothing (a preloaded library takes the place of
prometheus-cpp's updates), and with a capture beside none. Runs take turns in
pairs; the median of the pairs' ratios is told, and that of the CPU time that the
server took for a token, which other work on the machine changes less.

    sight_cost.py [--pairs 8] [--users 16] [--seconds 6] [--only metrics|capture]
                  [--threads 1]

Needs g++.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parents[3]
LOADTEST = REPO / "build/release/bin/millrace-loadtest"
NOTHING = """
namespace prometheus {
struct Counter { void Increment(); void Increment(double); };
struct Gauge { void Set(double); void Increment(double); };
struct Histogram { void Observe(double); };
void Counter::Increment() {}
void Counter::Increment(double) {}
void Gauge::Set(double) {}
void Gauge::Increment(double) {}
void Histogram::Observe(double) {}
}
"""


def serve(port, env, threads):
    cache = pathlib.Path(os.environ.get(
        "MILLRACE_CACHE", pathlib.Path.home() / ".cache/millrace"))
    server = subprocess.Popen(
        [REPO / "build/release/bin/millrace", "serve",
         cache / "models/SmolLM2-135M-Instruct.Q4_1.gguf", "--http-port",
         str(port), "--grpc-port", "-1", "--log-level", "warning",
         *(["--threads", str(threads)] if threads else [])],
        env={**os.environ, **env})
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
            return server
        except OSError:
            time.sleep(0.1)
    sys.exit("the server did not start")


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text()
    fields = fields.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port, server, options, work, seed):
    """Tokens/s, and CPU milliseconds of the server for a token."""
    out = work / "report.json"
    before = cpu_seconds(server)
    subprocess.run(
        [LOADTEST, "--url", f"http://127.0.0.1:{port}", "--streaming",
         "--concurrency", str(options.users), "--duration",
         f"{options.seconds}s", "--input-tokens", "32", "--output-tokens", "32",
         "--random-seed", str(seed), "--no-progress", "--json", out],
        check=True, stdout=subprocess.DEVNULL)
    report = json.loads(out.read_text())
    assert report["errors"]["total"] == 0, report["errors"]
    tokens = report["output_tokens"]["mean"] * report["request_count"]
    return (report["output_token_throughput"],
            1000 * (cpu_seconds(server) - before) / tokens)


def capture(port, seconds):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/debug/trace?seconds={seconds}", b"")
    with urllib.request.urlopen(request, timeout=120) as answer:
        return len(answer.read())


def generated(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("millrace_generation_tokens_total"):
                return float(line.split()[-1])
    return 0


def tell(name, pairs):
    for i, what in enumerate(("tokens/s", "ms of CPU time a token")):
        ratios = [on[i] / off[i] for on, off in pairs]
        print(f"{name}: {statistics.median(p[0][i] for p in pairs):.3f} {what}, "
              f"without {statistics.median(p[1][i] for p in pairs):.3f}; ratio "
              f"of pairs {statistics.median(ratios):.4f} ({min(ratios):.4f} to "
              f"{max(ratios):.4f}, {len(pairs)} pairs)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", choices=("metrics", "capture"))
    options = parser.parse_args()
    print(subprocess.run(["lscpu"], capture_output=True, text=True).stdout
          .split("Model name:")[1].split("\n")[0].strip())
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "nothing.cc").write_text(NOTHING)
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o",
                        work / "nothing.so", work / "nothing.cc"], check=True)
        nothing = {"LD_PRELOAD": str(work / "nothing.so")}
        servers = {8094: serve(8094, {}, options.threads),
                   8095: serve(8095, nothing, options.threads)}
        try:
            for port in (8094, 8095):
                measure(port, servers[port], options, work, 0)
            assert generated(8094) > 0 and generated(8095) == 0
            if options.only != "capture":
                pairs = []
                for i in range(options.pairs):
                    got = {}
                    for port in ((8094, 8095), (8095, 8094))[i % 2]:
                        got[port] = measure(port, servers[port], options, work,
                                            i + 1)
                    pairs.append((got[8094], got[8095]))
                tell("metrics", pairs)
            if options.only != "metrics":
                pairs = []
                for i in range(options.pairs):
                    got = {}
                    for on in ((True, False), (False, True))[i % 2]:
                        thread = threading.Thread(
                            target=capture, args=(8094, options.seconds + 2))
                        if on:
                            thread.start()
                            time.sleep(0.5)
                        got[on] = measure(8094, servers[8094], options, work,
                                          100 + i)
                        if on:
                            thread.join()
                    pairs.append((got[True], got[False]))
                tell("capture", pairs)
        finally:
            for server in servers.values():
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
