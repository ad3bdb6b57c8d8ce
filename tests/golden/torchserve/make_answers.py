#!/usr/bin/env python3
"""Writes answers.json: what a real TorchServe says to the corpus.

    make_answers.py PATH/TO/torchserve

TorchServe 0.12 with Java 17. Its handlers here use numpy, so torch itself is
imported and not used. The server is started on free ports and stopped at the
end.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import corpus
import replay
from archives import write_store


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main():
    program = pathlib.Path(sys.argv[1]).absolute()
    ports = dict(zip(("inference", "management", "metrics"), free_ports(3)))
    with tempfile.TemporaryDirectory() as root:
        store = pathlib.Path(root) / "store"
        store.mkdir()
        write_store(store, "python")
        grpc = free_ports(2)
        config = pathlib.Path(root) / "config.properties"
        config.write_text("".join(
            f"{port}_address=http://127.0.0.1:{number}\n"
            for port, number in ports.items()) +
            f"grpc_inference_port={grpc[0]}\ngrpc_management_port={grpc[1]}\n"
            f"model_store={store}\nload_models=linear.mar\n"
            "default_workers_per_model=1\ndisable_token_authorization=true\n"
            "enable_model_api=true\nvmargs=-Xmx512m\n")
        environment = {**os.environ, "LOG_LOCATION": root,
                       "METRICS_LOCATION": root,
                       "PATH": f"{program.parent}:{os.environ['PATH']}"}
        with open(pathlib.Path(root) / "start.log", "w") as log:
            server = subprocess.Popen(
                [str(program), "--foreground", "--ncs", "--ts-config", config],
                cwd=root, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        try:
            for _ in range(600):
                try:
                    replay.settle("127.0.0.1", ports["management"])
                    break
                except OSError:
                    time.sleep(0.1)
            answers = replay.replay("127.0.0.1", ports, corpus.CASES)
        finally:
            subprocess.run([str(program), "--stop"], env=environment,
                           stdout=subprocess.DEVNULL, check=False)
            server.terminate()
            server.wait()
    with open(pathlib.Path(__file__).parent / "answers.json", "w") as file:
        file.write("{\n" + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(answer)}"
            for name, answer in answers.items()) + "\n}\n")


if __name__ == "__main__":
    main()
