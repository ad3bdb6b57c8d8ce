"""The server around graphs: what it adds to a model's time, beside Triton and
TorchServe, under overload, and while models come and go. See serving.sh."""
import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import servers
from servers import BIN, GRAPHS, REPO, by_turns, load, median, millrace, spread

sys.path.insert(0, str(REPO / "tests/golden/triton"))
import repository  # noqa: E402

ROW = ["--shape", "INPUT0:1,16", "-m", "identity"]
ORT_MODEL = '''
import json
import triton_python_backend_utils as pb
import numpy as np
import onnxruntime


class TritonPythonModel:
    def initialize(self, args):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = {threads}
        self.session = onnxruntime.InferenceSession({path!r}, options)

    def execute(self, requests):
        names = [i.name for i in self.session.get_inputs()]
        feeds = {{n: np.concatenate([pb.get_input_tensor_by_name(r, n).as_numpy() for r in requests])
                 for n in names}}
        rows = [len(pb.get_input_tensor_by_name(r, names[0]).as_numpy()) for r in requests]
        outputs = self.session.run(None, feeds)
        ends = np.cumsum(rows)[:-1]
        parts = [np.split(o, ends) for o in outputs]
        kept = [o.name for o in self.session.get_outputs()]
        return [pb.InferenceResponse([pb.Tensor(n, p[i]) for n, p in zip(kept, parts)])
                for i in range(len(requests))]
'''
# Inputs and outputs behind the batch's dimension, and the sizes of one request.
MODELS = {
    "resnet50": ('input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]',
                 ["--shape", "x:1,3,224,224"]),
    "minilm": ('input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] }, '
               '{ name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] } ]',
               ["--shape", "input_ids:1,128", "--shape", "attention_mask:1,128"]),
}


def line(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(*cells):
    print()
    line(*cells)
    line(*["---"] * len(cells))


def rps(report):
    return report["request_throughput"]


def p50_us(report):
    return report["request_latency_ms"]["p50"] * 1e3


def threads():
    text = subprocess.run([BIN / "millrace", "topology"], stdout=subprocess.PIPE, text=True).stdout
    return int(text.split("compute team of model 1: ")[1].split()[0])


def identity_repository(kind):
    root = tempfile.mkdtemp(prefix="millrace-bench-")
    repository.write_repository(root, kind)
    for folder in pathlib.Path(root).iterdir():
        if folder.name != "identity":
            shutil.rmtree(folder)
    return root


def bench_identity(args):
    """A model that computes nothing beside a server that does nothing."""
    all_servers = [millrace("--model-repository", identity_repository("onnx")), servers.echo()]
    peer = servers.triton(identity_repository("python"))
    if peer:
        all_servers.append(peer)
    try:
        head("identity, rounds by turns", "clients", *[s.name for s in all_servers], "ours / echo",
             *(["ours / Triton"] if peer else []))
        for grpc in (False, True):
            wire = "gRPC" if grpc else "REST"
            for clients in (1, 16):
                found = by_turns(
                    all_servers,
                    lambda s: load(s, *ROW, "--concurrency", clients, grpc=grpc, seconds=3),
                    args.rounds)
                for what, of, digits in ((f"{wire}, requests/s", rps, 0),
                                         (f"{wire}, p50 µs", p50_us, 0)):
                    values = {n: [of(r) for r in reports] for n, reports in found.items()}
                    ours = median(values["millrace"])
                    cells = [spread(values[s.name], digits) for s in all_servers]
                    ratio = f"{ours / median(values['echo']):.2f}" if of is rps else \
                        f"+{ours - median(values['echo']):.0f} µs"
                    line(what, clients, *cells, ratio,
                         *([f"{ours / median(values['Triton']):.2f}"] if peer else []))
    finally:
        for server in all_servers:
            server.stop()


def bare_rate(name, batch):
    """Rows a second of the model without a server."""
    sizes = ["--sizes", "batch=" + str(batch) + (",seq=128" if name == "minilm" else "")]
    ended = subprocess.run([BIN / "millrace", "run", GRAPHS / f"{name}.onnx", *sizes, "--iters",
                            "20"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    return batch * 1e3 / json.loads(ended.stdout.splitlines()[-1])["median_ms"]


def model_repository(kind, name, delay_us=2000, batch=8):
    root = pathlib.Path(tempfile.mkdtemp(prefix="millrace-bench-"))
    folder = root / name / "1"
    folder.mkdir(parents=True)
    path = GRAPHS / f"{name}.onnx"
    outputs = ""
    if kind == "onnx":
        (folder / "model.onnx").symlink_to(path)
        backend = 'platform: "onnxruntime_onnx"'
    else:
        (folder / "model.py").write_text(ORT_MODEL.format(threads=threads(), path=str(path)))
        backend = 'backend: "python"'
        metadata = json.loads(subprocess.run(
            [sys.executable, "-c", "import onnx, sys, json; m = onnx.load(sys.argv[1], "
             "load_external_data=False); print(json.dumps([o.name for o in m.graph.output]))", path],
            stdout=subprocess.PIPE, check=True).stdout)
        dims = {"resnet50": ["1000"], "minilm": ["-1, -1", "-1"]}[name]
        outputs = "output [ " + ", ".join(
            f'{{ name: "{n}" data_type: TYPE_FP32 dims: [ {d} ] }}'
            for n, d in zip(metadata, dims)) + " ]\n"
    (folder.parent / "config.pbtxt").write_text(
        f'name: "{name}"\n{backend}\nmax_batch_size: {batch}\n{MODELS[name][0]}\n{outputs}'
        f"dynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}\n")
    return root


def bench_models(args):
    """Real models under dynamic batching, beside the bare runtime and Triton."""
    head("model, 16 clients, rows/s", "millrace", "bare, batch 8", "ours / bare", "Triton + ORT",
         "ours / Triton", "p99 ms ours", "p99 ms Triton")
    for name, (_, shape) in MODELS.items():
        ours = millrace("--model-repository", model_repository("onnx", name))
        peer = servers.triton(model_repository("python", name))
        both = [s for s in (ours, peer) if s]
        bare = []
        try:
            def measure(server):
                if server is ours:
                    server.freeze(True)
                    bare.append(bare_rate(name, 8))
                    server.freeze(False)
                return load(server, "-m", name, *shape, "--concurrency", 16, seconds=8, warmup=3)

            found = by_turns(both, measure, args.rounds)
        finally:
            for server in both:
                server.stop()
        rates = {n: [rps(r) for r in reports] for n, reports in found.items()}
        tails = {n: [r["request_latency_ms"]["p99"] for r in reports]
                 for n, reports in found.items()}
        mine = median(rates["millrace"])
        line(name, spread(rates["millrace"], 1), spread(bare, 1), f"{mine / median(bare):.2f}",
             *([spread(rates["Triton"], 1), f"{mine / median(rates['Triton']):.2f}",
                spread(tails["millrace"]), spread(tails["Triton"])] if peer else ["–"] * 4))


# A process that takes so much CPU time as a client of so many requests/s does,
# in as many pieces, and sends no request.
BURN = """
import sys, time
rate, seconds = float(sys.argv[1]), float(sys.argv[2])
began = due = time.perf_counter()
spent = lambda: time.process_time() - start
start = time.process_time()
while True:
    due += 1 / rate
    time.sleep(max(due - time.perf_counter(), 0))
    allowed = (due - began) * seconds
    while spent() < allowed:
        pass
"""


class CpuTimes:
    """Seconds of CPU time of a server's threads, by name, and of the client, from
    here to `shares`, as parts of all cores' time."""

    def __init__(self, server):
        self.server, self.began = server, time.perf_counter()
        self.threads, self.client = server.thread_seconds(), self.of_children()

    @staticmethod
    def of_children():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def shares(self):
        cores = (time.perf_counter() - self.began) * os.cpu_count()
        found = {"client": (self.of_children() - self.client) / cores}
        for name, seconds in self.server.thread_seconds().items():
            found[name] = (seconds - self.threads.get(name, 0)) / cores
        return found


def told(shares):
    return ", ".join(f"{name} {share:.1%}" for name, share in
                     sorted(shares.items(), key=lambda each: -each[1]) if share >= 0.0005)


def bench_overload(args):
    """Ten times what the server can do, for a minute."""
    name, shape = "minilm", MODELS["minilm"][1]
    deadline_ms = 1000
    with millrace("--model-repository", model_repository("onnx", name)) as server:
        def measure_peak():
            return rps(load(server, "-m", name, *shape, "--concurrency", 16, seconds=8, warmup=2))

        times = CpuTimes(server)
        peak = measure_peak()
        peak_shares = times.shares()
        slow, health, refusals = [], [], []
        over = threading.Event()
        row = json.dumps({"inputs": [
            {"name": n, "datatype": "INT64", "shape": [1, 8], "data": [1] * 8}
            for n in ("input_ids", "attention_mask")]}).encode()

        def watch():
            while not over.is_set():
                for path, kept in (("/v2/health/ready", health), ("/metrics", slow)):
                    began = time.perf_counter()
                    urllib.request.urlopen(server.url + path, timeout=10).read()
                    kept.append((time.perf_counter() - began) * 1e3)
                began = time.perf_counter()
                try:
                    post(f"{server.url}/v2/models/{name}/infer", row,
                         {"X-Request-Timeout-Ms": str(deadline_ms)})
                except urllib.error.HTTPError as error:
                    # What waited and was dropped then has no Retry-After.
                    if error.headers["Retry-After"]:
                        refusals.append((time.perf_counter() - began) * 1e3)
                time.sleep(0.1)

        before = server.rss_mib()
        watcher = threading.Thread(target=watch)
        watcher.start()
        times = CpuTimes(server)
        report = load(server, "-m", name, *shape, "--request-rate", round(10 * peak), "--arrival",
                      "poisson", "--slo", f"latency:p99:{deadline_ms}ms", "--max-error-rate", "1",
                      "--max-connections", "256", "--request-timeout", "10s", "--header",
                      f"X-Request-Timeout-Ms: {deadline_ms}",
                      seconds=args.seconds, warmup=2)
        shares = times.shares()
        over.set()
        watcher.join()
        after = server.rss_mib()
        burner = subprocess.Popen([sys.executable, "-c", BURN, str(10 * peak),
                                   str(shares["client"] * os.cpu_count())])
        try:
            burdened = measure_peak()
        finally:
            burner.kill()
            burner.wait()
        again = measure_peak()
    head("overload", "value", "wanted")
    line("peak, requests/s, before and after", f"{peak:.1f}, {again:.1f}", "")
    line("peak beside a process that takes as much of the cores as the client",
         f"{burdened:.1f}", "")
    line(f"offered for {args.seconds} s", f"{10 * peak:.0f}", "10 × peak")
    line(f"answered within {deadline_ms} ms, of the mean peak",
         f"{report['goodput'] / ((peak + again) / 2):.2f}", "≥ 0.95")
    line(f"answered within {deadline_ms} ms, of the peak beside that process",
         f"{report['goodput'] / burdened:.2f}", "")
    line("CPU time of all cores at the peak", told(peak_shares), "")
    line("CPU time of all cores in overload", told(shares), "")
    line("errors", json.dumps(report["errors"]["by_kind"]), "http_429, http_504")
    for what, values, wanted in (("a refusal", refusals, "< 5"), ("health", health, ""),
                                 ("/metrics", slow, "")):
        values.sort()
        if values:
            line(f"{what}, p50 and p99 ms of {len(values)}, a new connection each",
                 f"{median(values):.1f}, {values[int(len(values) * .99)]:.1f}", wanted)
    line("RSS before and after, MiB", f"{before:.0f}, {after:.0f}", "flat")


def post(url, body=b"{}", headers=None):
    request = urllib.request.Request(
        url, body, {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def bench_cycles(args):
    """Models and versions come, go and change under load."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="millrace-bench-"))
    data = REPO / "tests/data/graph"
    for name in ("mlp", "other"):
        for version in (1, 2):
            folder = root / name / str(version)
            folder.mkdir(parents=True)
            shutil.copy(data / "mlp.onnx", folder / "model.onnx")
    (root / "big/1").mkdir(parents=True)
    (root / "big/1/model.onnx").symlink_to(GRAPHS / "minilm.onnx")
    case = json.loads((data / "mlp.json").read_text())[0]
    body = json.dumps({"inputs": [
        {"name": n, "datatype": "FP32", "shape": list(shape), "data": case[n]}
        for n, shape in (("x", (len(case["x"]), len(case["x"][0]))),
                         ("scale", (len(case["scale"]),)))]}).encode()
    counts = {"answered": 0, "not loaded": 0}
    failures = []
    lock = threading.Lock()
    over = threading.Event()
    chance = random.Random(1)
    with millrace("--model-repository", root, "--model-control-mode", "explicit", "--load-model",
                  "mlp,other") as server:
        def ask(name, may_leave):
            while not over.is_set():
                try:
                    answer = json.loads(post(f"{server.url}/v2/models/{name}/infer", body))
                    good = [round(v, 3) for v in answer["outputs"][0]["data"][:2]]
                    want = [round(v, 3) for v in sum(case["logits"], [])[:2]]
                    with lock:
                        counts["answered"] += 1
                        if good != want:
                            failures.append(f"{name}: {good}")
                except urllib.error.HTTPError as error:
                    text = error.read().decode()
                    with lock:
                        # Refused at the door, not accepted and then lost.
                        if may_leave and error.code in (400, 404, 503) and (
                                "not loaded" in text or "unloaded" in text or "loaded" in text):
                            counts["not loaded"] += 1
                        else:
                            failures.append(f"{name}: {error.code} {text}")
                except OSError as error:
                    failures.append(f"{name}: {error!r}")

        clients = [threading.Thread(target=ask, args=("mlp", False)) for _ in range(2)]
        clients += [threading.Thread(target=ask, args=("other", True))]
        for client in clients:
            client.start()
        resident = []
        for cycle in range(args.cycles):
            versions = chance.choice([{"latest": {}}, {"all": {}}, {"specific": {"versions": [1]}}])
            config = {"version_policy": versions, "max_batch_size": 8, "dynamic_batching": {},
                      "instance_group": [{"count": chance.randint(1, 2)}]}
            load_body = json.dumps({"parameters": {"config": json.dumps(config)}}).encode()
            post(f"{server.url}/v2/repository/models/mlp/load", load_body)
            verb = chance.choice(["load", "unload"])
            post(f"{server.url}/v2/repository/models/other/{verb}")
            if cycle % 10 == 0:
                post(f"{server.url}/v2/repository/models/big/load")
                post(f"{server.url}/v2/repository/models/big/unload")
            if cycle % max(args.cycles // 20, 1) == 0:
                resident.append(server.rss_mib())
        over.set()
        for client in clients:
            client.join()
        time.sleep(2)
        resident.append(server.rss_mib())
    head("change under load", "value", "wanted")
    line("cycles", args.cycles, "1,000")
    line("answered", counts["answered"], "")
    line("refused because the model was unloaded", counts["not loaded"], "")
    line("failed", len(failures), "0")
    early, late = median(resident[1:6]), median(resident[-6:-1])
    line("RSS under load, early and late, MiB", f"{early:.0f}, {late:.0f}",
         f"within 5 %: {late / early - 1:+.1%}")
    line("RSS at the end, MiB", f"{resident[-1]:.0f}", "")
    for failure in failures[:5]:
        print(failure)


def bench_pinning(args):
    """One step after the other of the ladder that TorchServe's CPU study climbs."""
    name, shape = "resnet50", MODELS["resnet50"][1]
    cores = threads()
    batched = model_repository("onnx", name, batch=8)
    single = model_repository("onnx", name, batch=1)
    steps = [
        ("one instance, all cores", [], single),
        ("one instance a core, pinned", ["--instance-count", cores], single),
        ("the same, batches of 8", ["--instance-count", cores], batched),
        ("one instance, all cores, batches of 8", [], batched),
    ]
    head("ladder, 16 clients", "requests/s", "of the first")
    first = None
    for text, flags, root in steps:
        with millrace("--model-repository", root, *flags) as server:
            rates = [rps(load(server, "-m", name, *shape, "--concurrency", 16, seconds=5, warmup=2))
                     for _ in range(args.rounds)]
        first = first or median(rates)
        line(text, spread(rates, 1), f"{median(rates) / first:.2f}")


def bench_torchserve(args):
    import torchserve
    torchserve.bench(line, head, min(args.rounds, 3), args.models)


PARTS = {"identity": bench_identity, "models": bench_models, "overload": bench_overload,
         "cycles": bench_cycles, "pinning": bench_pinning, "torchserve": bench_torchserve}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[p for p in PARTS if p != "torchserve"])
    parser.add_argument("--models", nargs="+", default=["resnet50", "minilm", "resnet50_jpeg"],
                        help="of the torchserve part")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=60, help="of the overload")
    parser.add_argument("--cycles", type=int, default=1000)
    options = parser.parse_args()
    for part in options.only:
        PARTS[part](options)
