"""A server on the GPU gives the same answers alone and together.

    python3 serve.py MODEL -- COMMAND...    COMMAND is millrace, or what runs it

The server ends with this program, however that ends.
"""
import concurrent.futures
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

REQUESTS = 16
START_S = 60  # until the model must be loaded


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until_ready(server, root):
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(root + "/v2/health/ready", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"the server was not ready within {START_S} s")


def ask(root, model, seed):
    body = {"prompt": f"word{1000 + seed} word{2000 + seed}", "max_tokens": 48,
            "temperature": seed % 2 * 0.8, "seed": seed, "model": model}
    request = urllib.request.Request(
        root + "/v1/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["choices"][0]["text"]


def compare(server, root, model):
    wait_until_ready(server, root)
    alone = [ask(root, model, seed) for seed in range(REQUESTS)]
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        together = list(pool.map(lambda seed: ask(root, model, seed),
                                 range(REQUESTS)))
    if server.poll() is not None:
        sys.exit(f"the server ended with status {server.returncode}")
    server.terminate()
    status = server.wait(20)
    print("the same answers alone and together:", alone == together)
    return alone != together or status != 0


def main(model, command):
    port = free_port()
    # What ends this program lets it end the server first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    with subprocess.Popen([*command, "serve", model, "--device", "cuda:0",
                           "--port", str(port)]) as server:
        try:
            return compare(server, f"http://127.0.0.1:{port}",
                           pathlib.Path(model).stem)
        finally:
            server.terminate()
            try:
                server.wait(3)
            except subprocess.TimeoutExpired:
                server.kill()


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[3:]))
