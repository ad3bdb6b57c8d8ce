#!/usr/bin/env python3
"""millrace-loadtest plan beside what it predicts: one server of the default model
at three loads, or three replicas behind HAProxy. `plan fit` measures one server;
then traces (Poisson arrivals, lengths around a mean) are sent to the servers and
simulated, and both are printed side by side.

    predict.py one [--rounds 3] [--loads 0.4,0.7,0.9]
    predict.py three [--cpu 0.3]     three replicas of one thread share the first
                                     core, each may use so much of it (cgroup v1
                                     or v2, as root)
    predict.py size                  10,000 replicas, a million requests

Loads are shares of the most that one server (or three) did in the fit; with
--server-model FILE the fit is kept, and taken from there if it is, so that loads
may be measured one by one (--loads '' makes the fit alone). "three" needs haproxy
and the packages of tests/requirements.txt.
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
LOADTEST = REPO / "build/release/bin/millrace-loadtest"
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


def fit(url, model, work, options, cpus):
    if options.server_model and options.server_model.exists():
        return options.server_model
    out = options.server_model or work / "server.json"
    print(run(LOADTEST, "plan", "fit", "--url", url, "-m", model,
              "--endpoint-type", "completions", "--loads",
              ",".join(map(str, USERS)), "--duration",
              f"{options.fit_seconds}s", "--warmup", "2s",
              "--input-tokens", f"{INPUT[0]}:{INPUT[1]}", "--output-tokens",
              f"{OUTPUT[0]}:{OUTPUT[1]}", "--no-progress", "--output", out,
              cpus=cpus))
    return out


def most_per_second(model_file, work):
    """What the simulation says of a server that is asked too much."""
    out = work / "most.json"
    subprocess.run([LOADTEST, "plan", "--server-model", model_file,
                    "--request-rate", "1000", "-n", "3000", "--replicas", "1",
                    "--input-tokens", f"{INPUT[0]}:{INPUT[1]}",
                    "--output-tokens", f"{OUTPUT[0]}:{OUTPUT[1]}", "--json",
                    out], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())["steps"][0]["request_throughput"]


def compare(url, model, model_file, work, rate, replicas, options, cpus):
    rows = []
    for number in range(options.rounds):
        file = work / "trace.jsonl"
        count = max(100, round(rate * options.seconds))
        trace(file, rate, count, number)
        measured, planned = work / "measured.json", work / "planned.json"
        run(LOADTEST, "--url", url, "-m", model, "--endpoint-type",
            "completions", "--streaming", "--arrival", "trace", "--dataset",
            file, "--no-progress", "--json", measured, cpus=cpus)
        run(LOADTEST, "plan", "--server-model", model_file, "--arrival",
            "trace", "--dataset", file, "--replicas", replicas, "--json",
            planned)
        real = json.loads(measured.read_text())
        plan = json.loads(planned.read_text())["steps"][0]
        assert real["errors"]["total"] == 0, real["errors"]
        rows.append([(plan[key], real[key]) if part is None else
                     (plan[key][part], real[key][part]) for key, part in
                     (("request_throughput", None),
                      ("time_to_first_token_ms", "p50"),
                      ("time_to_first_token_ms", "p99"),
                      ("request_latency_ms", "p50"))])
    line = f"{rate:10.2f}"
    for pairs in zip(*rows):
        plan = statistics.median(pair[0] for pair in pairs)
        real = statistics.median(pair[1] for pair in pairs)
        offs = [100 * (pair[0] / pair[1] - 1) for pair in pairs]
        line += (f"  {plan:9.2f} {real:9.2f} {100 * (plan / real - 1):+6.1f}%"
                 f" ({min(offs):+.0f}..{max(offs):+.0f})")
    print(line, flush=True)


def header():
    print(f"{'due/s':>10}" + "".join(
        f"  {name + ': plan':>14}{'real':>5}{'off':>8}{'(rounds)':>10}"
        for name in ("requests/s", "TTFT p50", "TTFT p99", "latency p50")))


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
            file = fit(server.url, model, work, options, cores[-1])
            most = most_per_second(file, work)
            print(f"the most of one server: {most:.2f} requests/s")
            header()
            for load in options.loads:
                compare(server.url, model, file, work, load * most, 1, options,
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
                file = fit(f"http://127.0.0.1:{fleet.ports[1]}", model, work,
                           options, cores[-1])
                most = most_per_second(file, work)
                print(f"the most of one server: {most:.2f} requests/s")
                header()
                for load in options.loads:
                    compare(fleet.url, model, file, work, 3 * load * most, 3,
                            options, cores[-1])
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
    parser.add_argument("--server-model", type=pathlib.Path)
    parser.add_argument("--cpu", type=float)
    options = parser.parse_args()
    print(subprocess.run(["lscpu"], capture_output=True, text=True).stdout
          .split("Model name:")[1].split("\n")[0].strip())
    globals()[options.what](options)


if __name__ == "__main__":
    main()
