"""Three servers behind the proxy configurations of deploy/proxy, on free ports,
and clients that tell how each of their streams ended. For test_replicas.py and
tests/bench/replicas.py."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx

from conftest import MODEL, MODEL_ID, REPO, Server

FOLDER = REPO / "deploy" / "proxy"
PROXIES = ("haproxy", "nginx")
CORES = sorted(os.sched_getaffinity(0))


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def found(kind):
    """The proxy's program, which stands where not every user looks."""
    return shutil.which(kind, path=os.environ["PATH"] + ":/usr/sbin")


def until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


class Fleet:
    def __init__(self, kind, folder, flags=()):
        *self.ports, self.port = free_ports(4)
        self.url = f"http://127.0.0.1:{self.port}"
        self.flags, self.kind = flags, kind
        self.servers = [None] * 3
        self.folder = pathlib.Path(folder)
        self.proxy = None

    def start_server(self, i):
        """A compute thread each, on cores in turn."""
        self.servers[i] = Server(
            "--http-port", self.ports[i], "--grpc-port", -1, "--threads", 1,
            "--cpu-cores", CORES[i % len(CORES)], "--max-model-len", 1024,
            "--kv-cache-memory-bytes", "256MiB", *self.flags, MODEL)

    def __enter__(self):
        try:
            for i in range(3):
                self.start_server(i)
            self.start_proxy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_proxy(self):
        name = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}[self.kind]
        text = (FOLDER / name).read_text()
        for i, port in enumerate(self.ports):
            text = text.replace(f"127.0.0.1:800{i + 1}", f"127.0.0.1:{port}")
        text = re.sub(r"(bind |listen ):?8000",
                      rf"\g<1>127.0.0.1:{self.port}", text)
        # As a user who may not write where nginx keeps bodies.
        text = text.replace("http {", "http {\n" + "".join(
            f"  {part}_temp_path {self.folder}/{part};\n" for part in
            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")), 1)
        config = self.folder / name
        config.write_text(text)
        command = {
            "haproxy": [found(self.kind), "-db", "-f", config],
            "nginx": [found(self.kind), "-p", self.folder, "-c", config, "-g",
                      f"daemon off; pid {self.folder}/nginx.pid;"],
        }[self.kind]
        self.proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        until(lambda: self.request("GET", "/v2/health/ready")[0] == 200)

    def __exit__(self, *_):
        for process in [server.process for server in self.servers if server]:
            process.kill()
            process.wait()
        if self.proxy:
            self.proxy.terminate()
            self.proxy.wait(30)

    @staticmethod
    def link(port):
        return contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=120))

    def request(self, method, path, body=None, headers=()):
        """Status, replica, body; status 0: no answer."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            link.request(method, path, body and json.dumps(body),
                         dict(headers))
            answer = link.getresponse()
            return (answer.status, self.replica(answer), answer.read())
        except (OSError, http.client.HTTPException):
            return 0, None, b""
        finally:
            link.close()

    def replica(self, answer):
        """Its index, by the header that the proxy adds."""
        said = answer.headers.get("X-Replica", "")
        if self.kind == "haproxy":
            return int(said[-1]) - 1 if said else None
        port = said.split(", ")[-1].rpartition(":")[2]
        return self.ports.index(int(port)) if port else None

    def restart(self, i):
        """As a rolling restart does: until it is ready again."""
        self.servers[i].process.send_signal(signal.SIGTERM)
        assert self.servers[i].process.wait(120) == 0
        self.start_server(i)


class Stream:
    """One streamed completion: `end` is "done", "broken" or a status."""

    def __init__(self, fleet, tokens, key=None, prompt="Once upon a time"):
        self.fleet, self.key = fleet, key
        self.body = {"model": MODEL_ID, "prompt": prompt, "stream": True,
                     "max_tokens": tokens, "ignore_eos": True}
        self.replica, self.chunks, self.end, self.why = None, 0, None, ""

    def run(self):
        """By httpx, the library under openai-python and anthropic. (Python's own
        http.client reads lines of a chunked body that breaks off as if it had
        ended.)"""
        headers = {"X-Affinity-Key": self.key} if self.key else {}
        last = ""
        try:
            with httpx.stream("POST", f"{self.fleet.url}/v1/completions",
                              json=self.body, headers=headers, timeout=120,
                              trust_env=False) as answer:
                self.replica = self.fleet.replica(answer)
                if answer.status_code != 200:
                    self.why = answer.read().decode()
                    self.end = answer.status_code
                    return self
                for line in answer.iter_lines():
                    if line:
                        self.chunks += 1
                        last = line
            # A whole stream ends with [DONE]; a clean end without it would
            # pass for one with many clients.
            self.end = "done" if last == "data: [DONE]" else "clean but cut"
            if '"error"' in last:
                self.end = "broken"
        except httpx.HTTPError as error:
            self.why = repr(error)
            self.end = "broken"
        return self


class Clients:
    """So many threads that stream, one after the other, until they are told to
    stop; a retryable refusal is asked again."""

    def __init__(self, fleet, count, tokens):
        self.ended, self._stop = [], threading.Event()
        self._fleet, self._tokens = fleet, tokens
        self._threads = [threading.Thread(target=self._run)
                         for _ in range(count)]

    def _run(self):
        while not self._stop.is_set():
            stream = Stream(self._fleet, self._tokens).run()
            self.ended.append(stream)
            if stream.end in (429, 503):
                self._stop.wait(0.1)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(150)

    def done_by(self, replica, since):
        return sum(stream.end == "done" and stream.replica == replica
                   for stream in self.ended[since:])
