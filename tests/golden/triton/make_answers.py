#!/usr/bin/env python3
"""Writes answers.json: what a real Triton says to the corpus.

    make_answers.py PATH/TO/tritonserver [BACKENDS_FOLDER]

Triton 2.51 with its Python backend. The server is started on free ports with
the models of repository.py and stopped at the end.
"""
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import corpus
from replay import send
from repository import write_repository


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Triton:
    """The server; one that died is started again."""

    def __init__(self, binary, backends, root):
        self.ports = [free_port() for _ in range(3)]
        self.command = [
            binary, "--model-repository", root, "--backend-directory", backends,
            "--http-port", str(self.ports[0]), "--grpc-port",
            str(self.ports[1]), "--metrics-port", str(self.ports[2]),
            "--model-control-mode", "explicit", "--load-model", "*"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command,
                                        stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{self.ports[0]}/v2/health/ready"
        for _ in range(300):
            time.sleep(0.2)
            try:
                urllib.request.urlopen(url)
                return
            except OSError:
                pass
        raise RuntimeError("Triton does not become ready")

    def send(self, case):
        answer = send("127.0.0.1", self.ports[0], case)
        time.sleep(0.005)
        try:
            self.process.wait(0.05 if isinstance(answer["status"], str) else 0)
        except subprocess.TimeoutExpired:
            return answer
        self.start()
        return {"status": "the server ended"}


def main():
    server = pathlib.Path(sys.argv[1])
    backends = sys.argv[2] if len(sys.argv) > 2 else \
        server.parent.parent / "backends"
    with tempfile.TemporaryDirectory() as root:
        write_repository(root, "python")
        triton = Triton(server, backends, root)
        try:
            answers = {case.name: triton.send(case) for case in corpus.CASES}
        finally:
            triton.process.terminate()
            triton.process.wait()
    with open(pathlib.Path(__file__).parent / "answers.json", "w") as file:
        file.write("{\n" + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(answer)}"
            for name, answer in answers.items()) + "\n}\n")


if __name__ == "__main__":
    main()
