"""Server processes of ours and of the peers, one port each, all at once."""
import os
import signal
import subprocess
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "..", "peers")


class Server:
    def __init__(self, name, command, url, log):
        self.name, self.url = name, url
        self._log = open(log, "wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log,
                                         start_new_session=True)

    def wait(self, timeout_s):
        until = time.time() + timeout_s
        while time.time() < until:
            if self._process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self._process.returncode}: {self._log.name}")
            try:
                urllib.request.urlopen(self.url + "/v1/models", timeout=5)
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} does not answer: {self._log.name}")

    def freeze(self, frozen):
        """A server that is not asked just now takes no core with spinning."""
        os.killpg(self._process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def stop(self):
        self.freeze(False)
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._log.close()


def commands(args, model, parallel):
    """name -> (command, url, seconds until it answers)."""
    python = os.path.join(args.peers_venv, "bin", "python")
    found = {
        "millrace": ([args.millrace, "serve", model, "--http-port", "8096", "--grpc-port", "-1",
                      "--max-model-len", "4096", "--log-level", "warning", *args.flags],
                     "http://127.0.0.1:8096", 60),
        "llama.cpp": ([python, os.path.join(PEERS, "serve_llamacpp.py"), model, "--port", "8097",
                       "--parallel", str(parallel), "--ctx", "2048"],
                      "http://127.0.0.1:8097", 60),
    }
    if args.vllm:
        found["vLLM"] = (["bash", os.path.join(PEERS, "serve_vllm.sh"), "--port", "8095", "--parallel",
                          str(parallel), "--ctx", "2048"], "http://127.0.0.1:8095", 600)
    return found


class Servers:
    """All of them started, frozen but for the one that is asked."""

    def __init__(self, args, model, parallel):
        self.all = [Server(name, command, url, os.path.join(args.out, f"{name}.log"))
                    for name, (command, url, _) in commands(args, model, parallel).items()]
        for server, (_, _, seconds) in zip(self.all, commands(args, model, parallel).values()):
            server.wait(seconds)
        for server in self.all:
            server.freeze(True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.all:
            server.stop()
