#!/usr/bin/env python3
"""Writes answers.json and answers_grpc.json: what a real Triton says to both
corpora. Needs tritonclient[grpc].

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

import grpc
from tritonclient.grpc import service_pb2_grpc

import corpus
import corpus_grpc
import replay
import replay_grpc
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
        return self.alive(replay.send("127.0.0.1", self.ports[0], case))

    def call(self, call):
        with grpc.insecure_channel(f"127.0.0.1:{self.ports[1]}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            return self.alive(replay_grpc.send(stub, call))

    def alive(self, answer):
        """The answer, unless the server died of the question."""
        time.sleep(0.005)
        try:
            gone = answer["status"] == "UNAVAILABLE" or \
                "Disconnected" in str(answer["status"])
            self.process.wait(0.5 if gone else 0)
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
        # Each corpus changes settings: each has a server of its own.
        for name, cases, ask in (
                ("answers.json", corpus.CASES, Triton.send),
                ("answers_grpc.json", corpus_grpc.CALLS, Triton.call)):
            triton = Triton(server, backends, root)
            try:
                write(name, {case.name: ask(triton, case) for case in cases})
            finally:
                triton.process.terminate()
                triton.process.wait()


def write(name, answers):
    with open(pathlib.Path(__file__).parent / name, "w") as file:
        file.write("{\n" + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(answer)}"
            for name, answer in answers.items()) + "\n}\n")


if __name__ == "__main__":
    main()
