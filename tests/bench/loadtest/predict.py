#!/usr/bin/env python3
"""millrace-loadtest plan beside what it predicts: one server of the default model
at three loads, or three replicas behind HAProxy. `plan fit` measures one server,
traces (Poisson arrivals, lengths around a mean) are sent to the servers, and the
server is fitted again. The traces are simulated with the mean of both fits, and
both are printed side by side: two fits that differ tell how far the machine has
drifted meanwhile.

    predict.py one [--rounds 3] [--loads 0.4,0.7,0.9]
    predict.py three [--cpu 0.3]     three replicas of one thread share the first
                                     core, each may use so much of it (cgroup v1
                                     or v2, as root); one is fitted while the
                                     others have work, as in the measurement
    predict.py size                  10,000 replicas, a million requests

Loads are shares of the most that one server (or three) did in the first fit;
--json FILE keeps both fits and the figures. "three" needs haproxy and the packages
of tests/requirements.txt. MILLRACE_BIN is the folder of the binaries.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("MILLRACE_BIN", REPO / "build/release/bin"))
LOADTEST = BIN / "millrace-loadtest"
os.environ.setdefault("MILLRACE_BINARY", str(BIN / "millrace"))
sys.path.insert(0, str(REPO / "tests/e2e"))
INPUT, OUTPUT = (128, 32), (48, 12)
USERS = (1, 2, 4, 8, 16)


def run(*command, cpus=None):
    command = [str(part) for part in command]
    if cpus is not None:
        command = ["taskset", "-c", str(cpus), *command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


class CpuLimit:
    """A control group for one server; None of a CPU: no limit."""

    def __init__(self, name, cpus):
        old = pathlib.Path("/sys/fs/cgroup/cpu")
        self.folder = (old if old.exists() else pathlib.Path("/sys/fs/cgroup")
                       ) / f"millrace-{name}-{os.getpid()}"
        self.cpus = cpus
        if cpus is None:
            return
        self.folder.mkdir()
        period = 4000  # microseconds: steps take more
        if old.exists():
            (self.folder / "cpu.cfs_period_us").write_text(str(period))
            (self.folder / "cpu.cfs_quota_us").write_text(
                str(int(period * cpus)))
        else:
            (self.folder / "cpu.max").write_text(
                f"{int(period * cpus)} {period}")

    def take(self, pid):
        if self.cpus is not None:
            (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self):
        if self.cpus is not None:
            self.folder.rmdir()


def trace(path, rate, count, seed):
    rnd = random.Random(seed)
    at, lines = 0.0, []
    for _ in range(count):
        lines.append(json.dumps({
            "timestamp": at,
            "input_length": max(8, round(rnd.gauss(*INPUT))),
            "output_length": max(2, round(rnd.gauss(*OUTPUT)))}))
        at += 1000 * rnd.expovariate(rate)
    path.write_text("\n".join(lines) + "\n")


def fit(url, model, out, options, cpus):
    """Measures the server; its prices."""
    run(LOADTEST, "plan", "fit", "--url", url, "-m", model, "--endpoint-type",
        "completions", "--loads", ",".join(map(str, USERS)), "--duration",
        f"{options.fit_seconds}s", "--warmup", "1s", "--input-tokens",
        f"{INPUT[0]}:{INPUT[1]}", "--output-tokens",
        f"{OUTPUT[0]}:{OUTPUT[1]}", "--no-progress", "--output", out,
        cpus=cpus)
    return json.loads(out.read_text())


def mean(first, second):
    """Of two fits: each number is the mean of both."""
    if isinstance(first, dict):
        return {key: mean(value, second[key]) if key in second else value
                for key, value in first.items()}
    if isinstance(first, list):
        return [mean(*pair) for pair in zip(first, second)]
    if isinstance(first, float) or isinstance(second, float):
        return (first + second) / 2
    return first


def show_fits(fits, most):
    print(f"{'':>22}{'before':>12}{'after':>12}{'off':>8}")
    for key in fits[0]:
        pair = [each.get(key) for each in fits]
        if all(isinstance(value, (int, float)) for value in pair) and pair[0]:
            print(f"{key:>22}{pair[0]:12.4g}{pair[1]:12.4g}"
                  f"{100 * (pair[1] / pair[0] - 1):+7.1f}%")
    print(f"{'the most, requests/s':>22}{most[0]:12.2f}{most[1]:12.2f}"
          f"{100 * (most[1] / most[0] - 1):+7.1f}%")


def most_per_second(model_file, work):
    """What the simulation says of a server that is asked too much."""
    out = work / "most.json"
    subprocess.run([LOADTEST, "plan", "--server-model", model_file,
                    "--request-rate", "1000", "-n", "3000", "--replicas", "1",
                    "--input-tokens", f"{INPUT[0]}:{INPUT[1]}",
                    "--output-tokens", f"{OUTPUT[0]}:{OUTPUT[1]}", "--json",
                    out], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())["steps"][0]["request_throughput"]


FIGURES = (("requests/s", "request_throughput", None),
           ("TTFT p50", "time_to_first_token_ms", "p50"),
           ("TTFT p99", "time_to_first_token_ms", "p99"),
           ("latency p50", "request_latency_ms", "p50"))


def figures(report):
    return [report[key] if part is None else report[key][part]
            for _, key, part in FIGURES]


def measure(url, model, file, work, cpus):
    out = work / "measured.json"
    run(LOADTEST, "--url", url, "-m", model, "--endpoint-type", "completions",
        "--streaming", "--arrival", "trace", "--dataset", file,
        "--no-progress", "--json", out, cpus=cpus)
    report = json.loads(out.read_text())
    assert report["errors"]["total"] == 0, report["errors"]
    return figures(report)


def plan(model_file, file, replicas, work):
    out = work / "planned.json"
    run(LOADTEST, "plan", "--server-model", model_file, "--arrival", "trace",
        "--dataset", file, "--replicas", replicas, "--json", out)
    return figures(json.loads(out.read_text())["steps"][0])


def show(rate, planned, measured):
    line = f"{rate:10.2f}"
    for plans, reals in zip(zip(*planned), zip(*measured)):
        of, real = statistics.median(plans), statistics.median(reals)
        line += f"  {of:9.2f} {real:9.2f} {of / real:6.3f}"
        offs = [a / b for a, b in zip(plans, reals)]
        line += (f" ({min(offs):.2f}..{max(offs):.2f})"
                 if len(offs) > 1 else " " * 13)
    print(line, flush=True)


class Busy:
    """Keeps servers busy with requests that are not measured."""

    def __init__(self, urls, model, cpus):
        self.commands = [
            ["taskset", "-c", str(cpus), str(LOADTEST), "--url", url, "-m",
             model, "--endpoint-type", "completions", "--streaming",
             "--concurrency", "4", "--duration", "1h", "--input-tokens",
             f"{INPUT[0]}:{INPUT[1]}", "--output-tokens",
             f"{OUTPUT[0]}:{OUTPUT[1]}", "--no-progress"] for url in urls]

    def __enter__(self):
        self.clients = [subprocess.Popen(each, stdout=subprocess.DEVNULL)
                        for each in self.commands]

    def __exit__(self, *_):
        for client in self.clients:
            client.kill()
            client.wait()


def predict(url, fit_url, model, replicas, work, options, cpus, others=()):
    """Fits, measures the loads, fits again; prints plan beside measurement."""
    names = [work / f"server{i}.json" for i in range(3)]
    began = time.monotonic()
    busy = Busy(others, model, cpus)
    with busy:
        fits = [fit(fit_url, model, names[0], options, cpus)]
    most = [most_per_second(names[0], work)]
    rounds = []  # (rate, trace, what the servers did)
    for number in range(options.rounds):
        for load in options.loads:
            rate = replicas * load * most[0]
            file = work / f"trace{len(rounds)}.jsonl"
            trace(file, rate, max(100, round(rate * options.seconds)),
                  number)
            rounds.append((rate, file,
                           measure(url, model, file, work, cpus)))
    with busy:
        fits.append(fit(fit_url, model, names[1], options, cpus))
    most.append(most_per_second(names[1], work))
    names[2].write_text(json.dumps(mean(*fits)))
    print(f"measured in {time.monotonic() - began:.0f} s")
    show_fits(fits, most)
    kept = {"fits": fits, "loads": []}
    for what, file in zip(("first fit", "second fit", "mean of both fits"),
                          names):
        print(f"\nplan, measured and plan / measured, {what}\n{'due/s':>10}" +
              "".join(f"  {name:>9} {'':>9} {'':>6}{'':>13}"
                      for name, _, _ in FIGURES))
        for load in options.loads:
            rate = replicas * load * most[0]
            own = [each for each in rounds if each[0] == rate]
            planned = [plan(file, each[1], replicas, work) for each in own]
            show(rate, planned, [each[2] for each in own])
            kept["loads"].append({
                "fit": what, "due": rate, "plan": planned,
                "measured": [each[2] for each in own]})
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))


def one(options):
    cores = sorted(os.sched_getaffinity(0))
    limit = CpuLimit("one", options.cpu)
    from conftest import MODEL, Server
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        server = Server("--grpc-port", -1, "--threads", 1, "--cpu-cores",
                        cores[0], "--no-enable-prefix-caching", MODEL)
        limit.take(server.process.pid)
        try:
            model = json.load(urllib.request.urlopen(
                server.url + "/v1/models"))["data"][0]["id"]
            predict(server.url, server.url, model, 1, work, options,
                    cores[-1])
        finally:
            server.process.terminate()
            server.process.wait()
            limit.remove()


def three(options):
    cores = sorted(os.sched_getaffinity(0))
    from replicas import Fleet
    limits = [CpuLimit(str(i), options.cpu) for i in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        try:
            with Fleet("haproxy", folder,
                       ("--no-enable-prefix-caching", "--threads", "1",
                        "--cpu-cores", str(cores[0]))) as fleet:
                for server, limit in zip(fleet.servers, limits):
                    limit.take(server.process.pid)
                model = json.load(urllib.request.urlopen(
                    fleet.url + "/v1/models"))["data"][0]["id"]
                urls = [f"http://127.0.0.1:{port}" for port in fleet.ports]
                predict(fleet.url, urls[1], model, 3, work, options,
                        cores[-1], (urls[0], urls[2]))
        finally:
            for limit in limits:
                limit.remove()


def size(options):
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "server.json"
        model.write_text(json.dumps({
            "format": "millrace-server-model/1", "kind": "llm",
            "step_base_ms": 6, "prefill_token_ms": 0.05,
            "decode_sequence_ms": 0.5, "attended_key_us": 0.02,
            "request_overhead_ms": 1, "target_itl_ms": 150,
            "kv_tokens": 65536}))
        begun = time.monotonic()
        print(run(LOADTEST, "plan", "--server-model", model, "--request-rate",
                  30000, "--arrival", "poisson", "-n", 1_000_000, "--replicas",
                  10000, "--input-tokens", "200:50", "--output-tokens",
                  "100:30"))
        print(f"{time.monotonic() - begun:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("one", "three", "size"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fit-seconds", type=float, default=10)
    parser.add_argument("--loads", default="0.4,0.7,0.9",
                        type=lambda text: list(map(float, text.split(","))
                                               ) if text else [])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--cpu", type=float)
    options = parser.parse_args()
    print(subprocess.run(["lscpu"], capture_output=True, text=True).stdout
          .split("Model name:")[1].split("\n")[0].strip())
    globals()[options.what](options)


if __name__ == "__main__":
    main()
