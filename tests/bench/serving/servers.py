"""Servers of tensors as processes, ours and the peers, and one client for all."""
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("MILLRACE_BIN", REPO / "build/release/bin"))
CACHE = pathlib.Path(
    os.environ.get("MILLRACE_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "millrace")
GRAPHS = pathlib.Path(os.environ.get("GRAPH_MODELS", CACHE / "graph_models"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`command` gets its ports appended or formatted in by the caller."""

    def __init__(self, name, command, http, grpc=None, ready="/v2/health/ready", env=None,
                 seconds=120):
        self.name, self.http, self.grpc = name, http, grpc
        self.url = f"http://127.0.0.1:{http}"
        self.log = tempfile.NamedTemporaryFile("wb", suffix=f".{name}.log", delete=False)
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log,
                                        start_new_session=True, env={**os.environ, **(env or {})})
        end = time.time() + seconds
        while True:
            try:
                urllib.request.urlopen(self.url + ready, timeout=5)
                return
            except OSError:
                time.sleep(0.1)
            if self.process.poll() is not None or time.time() > end:
                self.stop()
                raise SystemExit(f"{name} does not answer: {self.log.name}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def freeze(self, frozen):
        """A server that is not asked just now takes no core with spinning."""
        os.killpg(self.process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def stop(self):
        if self.process.poll() is None:
            self.freeze(False)
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def rss_mib(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    def thread_seconds(self):
        """CPU time of its threads so far, by name; those of a team together."""
        found = {}
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            name = (task / "comm").read_text().strip().split("/")[0]
            # Of the scheduler, in nanoseconds: ticks of 10 ms miss short work.
            spent = int((task / "schedstat").read_text().split()[0]) / 1e9
            found[name] = found.get(name, 0) + spent
        return found


def millrace(*flags, **options):
    http, grpc = free_port(), free_port()
    return Server("millrace", [BIN / "millrace", "serve", *flags, "--http-port", http,
                               "--grpc-port", grpc, "--log-level", "warning"], http, grpc,
                  **options)


def echo():
    http, grpc = free_port(), free_port()
    return Server("echo", [BIN / "echo_server", http, grpc], http, grpc)


def triton(repository):
    """Triton 2.51 of the wheel nvidia-pytriton in TRITON_VENV; None without it."""
    venv = pathlib.Path(os.environ.get("TRITON_VENV", CACHE / "venv/peers-triton"))
    found = list(venv.glob("lib/python*/site-packages/pytriton/tritonserver"))
    if not found:
        return None
    http, grpc = free_port(), free_port()
    return Server("Triton", [
        found[0] / "bin/tritonserver", "--model-repository", repository,
        "--backend-directory", found[0] / "backends", "--http-port", http, "--grpc-port", grpc,
        "--metrics-port", free_port()], http, grpc)


def load(server, *flags, grpc=False, seconds=4, warmup=1):
    """One measurement; the report of millrace-loadtest."""
    target = ["--endpoint-type", "kserve-grpc", "--url", f"127.0.0.1:{server.grpc}"] if grpc else \
        ["--endpoint-type", "kserve", "--url", server.url]
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        ended = subprocess.run(
            [BIN / "millrace-loadtest", *target, "--no-progress", "--duration", f"{seconds}s",
             "--warmup", f"{warmup}s", "--json", report.name, *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if ended.returncode not in (0, 3):
            raise SystemExit(f"{server.name}: {ended.stdout}")
        return json.load(open(report.name))


def by_turns(servers, measure, rounds):
    """server name → figures of the rounds; those that wait are frozen."""
    figures = {server.name: [] for server in servers}
    for server in servers:
        server.freeze(True)
    for _ in range(rounds):
        for server in servers:
            server.freeze(False)
            figures[server.name].append(measure(server))
            server.freeze(True)
    for server in servers:
        server.freeze(False)
    return figures


def spread(values, digits=0):
    """"median (least–greatest)"."""
    form = f"{{:.{digits}f}}"
    return (form.format(statistics.median(values)) + " (" + form.format(min(values)) + "–"
            + form.format(max(values)) + ")")


def median(values):
    return statistics.median(values)
