"""The real binary, started for tests and spoken to by real clients.

`server` is one shared server with the default model; tests that need other
flags call `start(...)` themselves.
"""
import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time
import urllib.request

import pytest

# grpcio's handlers of fork() let a child with a preexec_fn end before it is the
# server ("Epoll1Poller … encountered epoll_wait error: Bad file descriptor"),
# about once in forty times while other threads make calls. Read when grpcio
# starts, which is after this.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

REPO = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(
    os.environ.get("MILLRACE_BINARY", REPO / "build/release/bin/millrace"))
CACHE = pathlib.Path(
    os.environ.get("MILLRACE_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME",
                                   pathlib.Path.home() / ".cache")) / "millrace")
MODEL = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_ID = MODEL.stem


class Server:
    """A running millrace; its JSON log lines are kept in `lines`. `until` is the
    event that it is waited for: "ready", or "listening" before any load.
    `launcher`: words before the program's name (mpirun and its flags)."""

    def __init__(self, *flags, env=None, preexec_fn=None, cwd=None,
                 until="ready", launcher=()):
        self.lines = []
        self._events = queue.Queue()
        self.process = subprocess.Popen(
            [*launcher, BINARY, "serve", "--http-port", "0", "--grpc-port", "0",
             "--log-format", "json", *map(str, flags)],
            stderr=subprocess.PIPE, text=True, preexec_fn=preexec_fn, cwd=cwd,
            env={**os.environ, **(env or {})})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            ready = self.wait_event(until)
        except BaseException:
            self.process.kill()
            raise
        self.http_port = ready["http_port"]
        self.grpc_port = ready["grpc_port"]
        self.url = f"http://127.0.0.1:{self.http_port}"

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            try:
                self._events.put(json.loads(line))
            except ValueError:
                pass
        self._events.put(None)

    def wait_event(self, name, timeout=60):
        """The next log line of that event."""
        end = time.monotonic() + timeout
        while True:
            event = self._events.get(timeout=max(0.01, end - time.monotonic()))
            if event is None:
                raise AssertionError(
                    f"the server ended before '{name}': " + "".join(self.lines))
            if event.get("event") == name:
                return event

    def line(self, *texts, timeout=10):
        """The last log line that has all these texts. An answer may arrive
        before the line about it is read, so it is waited for."""
        end = time.monotonic() + timeout
        while True:
            found = [line for line in list(self.lines)
                     if all(text in line for text in texts)]
            if found:
                return found[-1]
            if time.monotonic() > end:
                raise AssertionError(
                    f"no line with {texts}: " + "".join(self.lines))
            time.sleep(0.02)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read()

    def metric(self, name):
        """Values of a metric by its label text."""
        out = {}
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith(name + "{") or line.startswith(name + " "):
                labels, value = line.rsplit(" ", 1)
                out[labels[len(name):]] = float(value)
        return out

    def pages(self):
        out = {}
        for labels, value in self.metric("millrace_kv_pages").items():
            state = labels.split('state="')[1].split('"')[0]
            out[state] = int(value)
        return out

    def stop(self, sig=signal.SIGTERM, timeout=40):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(timeout)


@contextlib.contextmanager
def start(*flags, **kwargs):
    running = Server(*flags, **kwargs)
    try:
        yield running
    finally:
        running.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def server():
    assert MODEL.exists(), (
        f"the default model is missing ({MODEL}); run deploy/install_deps.sh")
    with start() as running:
        yield running


@pytest.fixture(scope="session")
def client(server):
    import openai
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                         max_retries=0, timeout=120)
