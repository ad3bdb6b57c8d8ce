#!/usr/bin/env python3
"""Starts build/arm64's `millrace` under qemu and asks it what users ask.

  deploy/arm64/serve_check.py [--binary FILE] [--peer FILE] [--models FOLDER]

--peer is a millrace of this machine (default: build/release/bin/millrace, if it
is there), with whose scalar kernels the results are compared, bit for bit where
the weights are integers, and for graphs in f32. ResNet-50 is resnet50.onnx and
.pt2 in FOLDER (default: graph_models in the cache) beside inputs and what should
come out; what is not there is skipped by name.
"""
import argparse
import contextlib
import json
import os
import pathlib
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.request
import zipfile

REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(
    os.environ.get("MILLRACE_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME",
                                   pathlib.Path.home() / ".cache")) / "millrace")
LLM = CACHE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS = [[1, 504, 216, 257, 3519, 282, 4649, 17, 42, 99, 1000, 2000, 3000, 4000]]
# Of the greatest output. Sums of f32 against those of another library.
TOLERANCE = 1e-4
SECONDS = 1800  # for anything; emulated matrix products take minutes


class Failed(Exception):
    """A check that did not hold."""


def expect(condition, sentence):
    if not condition:
        raise Failed(sentence)


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True,
                          text=True, timeout=SECONDS)
    expect(done.returncode == 0,
           f"{' '.join(map(str, command))}: exit {done.returncode}: "
           f"{done.stderr.strip()[-500:]}")
    return done.stdout


def first_array(path):
    """(shape, bytes) of the first array of an .npz file of f32."""
    with zipfile.ZipFile(path) as archive:
        data = archive.read(archive.namelist()[0])
    (length,) = struct.unpack("<H", data[8:10])
    header = data[10:10 + length].decode()
    expect("'<f4'" in header and "False" in header, f"{path}: not f32 rows")
    shape = header.split("(")[1].split(")")[0]
    return ([int(n) for n in shape.split(",") if n.strip()], data[10 + length:])


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


class Server:
    """A server of those models; `ask` sends a request, gives (headers, body)."""

    def __init__(self, command, models, flags):
        self._process = subprocess.Popen(
            [*map(str, command), "serve", *models, "--http-port", "0",
             "--grpc-port", "0", "--log-format", "json", *flags],
            stderr=subprocess.PIPE, text=True)
        self._events = queue.Queue()
        self._lines = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stderr:
            self._lines.append(line)
            with contextlib.suppress(ValueError):
                self._events.put(json.loads(line))
        self._events.put(None)

    def wait_ready(self):
        while (event := self._events.get(timeout=SECONDS)) is not None:
            if event.get("event") == "ready":
                self._url = f"http://127.0.0.1:{event['http_port']}"
                return
        raise Failed("the server ended: " + "".join(self._lines)[-1000:])

    def ask(self, path, body, headers):
        request = urllib.request.Request(self._url + path, body, headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.headers, answer.read()

    def chat(self, model):
        _, body = self.ask("/v1/chat/completions", json.dumps({
            "model": model, "temperature": 0, "max_tokens": 24,
            "messages": [{"role": "user", "content": "What is the water cycle?"}],
        }).encode(), {"Content-Type": "application/json"})
        return json.loads(body)["choices"][0]["message"]["content"]

    def infer(self, model, name, shape, data):
        """One output as bytes, by KServe v2 with binary tensors."""
        head = json.dumps({
            "inputs": [{"name": name, "shape": shape, "datatype": "FP32",
                        "parameters": {"binary_data_size": len(data)}}],
            "parameters": {"binary_data_output": True}}).encode()
        headers, body = self.ask(
            f"/v2/models/{model}/infer", head + data,
            {"Inference-Header-Content-Length": str(len(head))})
        return body[int(headers["Inference-Header-Content-Length"]):]

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise Failed("SIGTERM did not end the server") from None


@contextlib.contextmanager
def serving(command, models, *flags):
    server = Server(command, models, flags)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


class Checks:
    """Each public method is one check; it gives a line of what it saw."""

    def __init__(self, emulated, peer, models, folder):
        self.emulated = emulated
        self.peer = peer
        self.models = models
        self.folder = folder

    def both(self, name, verb, *flags):
        """What a verb writes here with --isa scalar, and there with auto."""
        out = [self.folder / f"{name}.{side}" for side in ("peer", "arm")]
        run([*self.emulated, verb, *flags, out[1]])
        if not self.peer:
            return None, out[1]
        run([*self.peer, verb, *flags, out[0], "--isa", "scalar"])
        return out

    def program(self):
        expect(run([*self.emulated, "--version"]).startswith("millrace"),
               "--version does not begin with the name")
        topology = run([*self.emulated, "topology"])
        lines = [line for line in topology.splitlines()
                 if "chosen by auto" in line or "kernels of graphs" in line]
        expect(all("neon" in line for line in lines) and len(lines) == 2,
               "the kernels of NEON are not chosen:\n" + topology)
        return "; ".join(line.strip() for line in lines)

    def logits(self):
        run([*self.emulated, "inspect", LLM])
        tokens = self.folder / "tokens.json"
        tokens.write_text(json.dumps(TOKENS))
        peer, arm = self.both("logits", "logits", LLM, "--tokens", tokens, "--raw",
                              "--out")
        if peer is None:
            return "no other millrace to compare with"
        expect(peer.read_bytes() == arm.read_bytes(),
               f"logits differ: {peer} and {arm}")
        return f"{arm.stat().st_size} bytes of logits are the same"

    def graphs(self):
        told = []
        for form in ("onnx", "pt2"):
            model = self.models / f"resnet50.{form}"
            if not model.exists():
                told.append(f"{model} is not there")
                continue
            peer, arm = self.both(f"resnet.{form}.npz", "run", model,
                                  "--input", self.models / "resnet50.b1.inputs.npz",
                                  "--output")
            self.compare(arm, floats(first_array(arm)[1]))
            if peer is not None:
                expect(first_array(peer) == first_array(arm),
                       f"outputs differ: {peer} and {arm}")
            told.append(f"{form} agrees")
        return ", ".join(told)

    def compare(self, name, got):
        want = floats(first_array(self.models / "resnet50.b1.expected.npz")[1])
        expect(len(got) == len(want), f"{name}: {len(got)} outputs")
        error = max(abs(g - w) for g, w in zip(got, want)) / max(map(abs, want))
        expect(error <= TOLERANCE, f"{name}: the error is {error}")

    def served(self):
        resnet = self.models / "resnet50.onnx"
        models = [f"chat={LLM}"]
        if resnet.exists():
            models.append(f"resnet={resnet}")
        with serving(self.emulated, models) as server:
            answer = server.chat("chat")
            if resnet.exists():
                shape, data = first_array(self.models / "resnet50.b1.inputs.npz")
                self.compare("resnet over HTTP",
                             floats(server.infer("resnet", "x", shape, data)))
        if self.peer:
            with serving(self.peer, models[:1], "--isa", "scalar") as server:
                here = server.chat("chat")
            expect(answer == here, f"it says {answer!r}, here {here!r}")
        return (f"it says {answer!r}" +
                (" and classifies" if resnet.exists() else
                 f"; {resnet} is not there"))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--binary", type=pathlib.Path,
                        default=REPO / "build/arm64/bin/millrace")
    parser.add_argument("--peer", type=pathlib.Path,
                        default=REPO / "build/release/bin/millrace")
    parser.add_argument("--models", type=pathlib.Path,
                        default=CACHE / "graph_models")
    args = parser.parse_args()
    emulated = ["qemu-aarch64", "-L", CACHE / "deps/arm64-sysroot", args.binary]
    peer = [args.peer] if args.peer.exists() else None
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(emulated, peer, args.models, pathlib.Path(folder))
        failed = 0
        for check in (checks.program, checks.logits, checks.graphs, checks.served):
            try:
                print(f"{check.__name__}: {check()}", flush=True)
            except (Failed, OSError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"{check.__name__}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
