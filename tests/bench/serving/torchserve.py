"""TorchServe 0.12 beside Millrace: the same tensors, and JPEG pictures, from 32
clients, closed loop, one client program for both (asyncio, requests made
beforehand)."""
import asyncio
import importlib.util
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np

import servers

HERE = pathlib.Path(__file__).resolve().parent
LENGTHS = (16, 128)  # of token ids, uniform
# ResNet-50 behind JPEG pictures of so many pixels, read as TorchServe's
# image_classifier reads them.
PICTURES = "resnet50_jpeg"
SIZES = ((500, 375), (640, 480), (1024, 768), (1600, 1200))
TASK = """
task: classify
task_options:
  resize: 256
  center_crop: 224
  mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
max_batch_size: 8
"""


def picture(width, height):
    """A smooth scene with some noise, about as dense as a photo."""
    from PIL import Image
    rng = np.random.default_rng(width)
    coarse = rng.integers(0, 256, (height // 32, width // 32, 3), np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize((width, height), Image.BICUBIC), np.int16)
    pixels = pixels + rng.integers(-12, 13, pixels.shape, np.int16)
    out = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=85)
    return out.getvalue()


def bodies(name, count=64):
    """Tensors of `count` requests, or bytes of pictures."""
    rng = np.random.default_rng(1)
    if name == PICTURES:
        return [np.frombuffer(picture(*size), np.uint8) for size in SIZES]
    if name == "resnet50":
        return [rng.standard_normal((1, 3, 224, 224), np.float32) for _ in range(4)]
    return [rng.integers(1000, 30000, (1, int(n)), np.int64)
            for n in rng.integers(LENGTHS[0], LENGTHS[1] + 1, count)]


def http_request(port, path, headers, body):
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Content-Length: {len(body)}",
             *[f"{k}: {v}" for k, v in headers.items()]]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def kserve_requests(port, name):
    made = []
    for tensor in bodies(name):
        named = {"x": tensor} if name == "resnet50" else \
            {"input_ids": tensor, "attention_mask": np.ones_like(tensor)}
        head = json.dumps({"inputs": [
            {"name": n, "datatype": "FP32" if t.dtype == np.float32 else "INT64",
             "shape": list(t.shape), "parameters": {"binary_data_size": t.nbytes}}
            for n, t in named.items()],
            "outputs": [{"name": "linear" if name == "resnet50" else "div_1",
                         "parameters": {"binary_data": True}}]}).encode()
        made.append(http_request(port, f"/v2/models/{name}/infer",
                                 {"Inference-Header-Content-Length": len(head)},
                                 head + b"".join(t.tobytes() for t in named.values())))
    return made


def torchserve_requests(port, name):
    return [http_request(port, f"/predictions/{name}",
                         {"Content-Type": "application/octet-stream"}, t.tobytes())
            for t in bodies(name)]


def predictions_requests(port, name):
    """To our own /predictions: one image as raw bytes, two tensors as JSON."""
    if name == "resnet50":
        return torchserve_requests(port, name)
    return [http_request(port, f"/predictions/{name}", {"Content-Type": "application/json"},
                         json.dumps({"input_ids": ids.tolist(),
                                     "attention_mask": np.ones_like(ids).tolist()}).encode())
            for ids in bodies(name)]


def picture_requests(port, name):
    return [http_request(port, f"/v1/tasks/{name}", {"Content-Type": "image/jpeg"}, t.tobytes())
            for t in bodies(name)]


async def client(port, requests, began, end, latencies, errors, seed):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    chance = random.Random(seed)
    while time.perf_counter() < end:
        sent = time.perf_counter()
        writer.write(chance.choice(requests))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if sent < began:
            continue
        if head.split(b" ", 2)[1] == b"200":
            latencies.append((time.perf_counter() - sent) * 1e3)
        else:
            errors.append(head)
    writer.close()


async def closed_loop(port, requests, clients, seconds, warmup):
    latencies, errors = [], []
    began = time.perf_counter() + warmup
    await asyncio.gather(*[client(port, requests, began, began + seconds, latencies, errors, i)
                           for i in range(clients)])
    latencies.sort()
    return {"rps": len(latencies) / seconds, "errors": len(errors),
            "p50": latencies[len(latencies) // 2], "p99": latencies[int(len(latencies) * .99)]}


def archive(name, store):
    """The model archive of TorchServe, made by torch.jit.trace as its users do."""
    import torch
    spec = importlib.util.spec_from_file_location("zoo", HERE.parent / "graph/models.py")
    zoo = importlib.util.module_from_spec(spec)
    sys.modules["zoo"] = zoo
    spec.loader.exec_module(zoo)
    model = zoo.MODELS[name.removesuffix("_jpeg")]
    handler = "image_classifier" if name == PICTURES else HERE / "torchserve_handler.py"
    with torch.no_grad():
        traced = torch.jit.trace(model.build(), tuple(model.inputs(2).values()), strict=False,
                                 check_trace=False)
        torch.jit.freeze(traced.eval()).save(store / f"{name}.pt")
    subprocess.run([sys.executable, "-m", "model_archiver.model_packaging", "--model-name", name,
                    "--version", "1.0", "--serialized-file", store / f"{name}.pt", "--handler",
                    handler, "--export-path", store, "--force"], check=True)


def quantized(name):
    """Its ONNX file quantised by ONNX Runtime, made once; random images calibrate."""
    made = servers.GRAPHS / f"{name}.batches.int8.onnx"
    if made.exists():
        return made.name
    from onnxruntime import quantization

    class Images(quantization.CalibrationDataReader):
        left = [{"x": tensor} for tensor in bodies(name)]

        def get_next(self):
            return self.left.pop() if self.left else None

    draft = made.with_suffix(".tmp")
    quantization.quantize_static(servers.GRAPHS / f"{name}.onnx", draft, Images(),
                                 quant_format=quantization.QuantFormat.QDQ, per_channel=True)
    draft.rename(made)
    return made.name


class TorchServe:
    """Started with its own launcher. tuned: a worker a core with one thread, batches of 8, 5 ms."""

    def __init__(self, name, store, tuned):
        self.name = "TorchServe tuned" if tuned else "TorchServe default"
        self.port, management, metrics = (servers.free_port() for _ in range(3))
        lines = [f"inference_address=http://127.0.0.1:{self.port}",
                 f"management_address=http://127.0.0.1:{management}",
                 f"metrics_address=http://127.0.0.1:{metrics}",
                 f"grpc_inference_port={servers.free_port()}",
                 f"grpc_management_port={servers.free_port()}",
                 f"model_store={store}", "disable_token_authorization=true",
                 "max_request_size=20000000", f"load_models={name}.mar"]
        # Where the launcher keeps the number of its process, which outlives it a little.
        folder = pathlib.Path(tempfile.mkdtemp(dir=store))
        env = {"LOG_LOCATION": str(store), "METRICS_LOCATION": str(store), "TMPDIR": str(folder),
               "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        if tuned:
            cores = os.cpu_count()
            env |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            lines.append("models=" + json.dumps({name: {"1.0": {
                "defaultVersion": True, "marName": f"{name}.mar", "minWorkers": cores,
                "maxWorkers": cores, "batchSize": 8, "maxBatchDelay": 5,
                "responseTimeout": 120}}}))
        config = store / "config.properties"
        config.write_text("\n".join(lines) + "\n")
        self.server = servers.Server(
            "torchserve", [pathlib.Path(sys.executable).parent / "torchserve", "--start",
                           "--foreground", "--ncs", "--ts-config", config], self.port,
            ready="/ping", env=env)
        body = bodies(name)[0].tobytes()
        for _ in range(120):
            try:
                urllib.request.urlopen(urllib.request.Request(
                    f"http://127.0.0.1:{self.port}/predictions/{name}", body,
                    {"Content-Type": "application/octet-stream"}), timeout=60).read()
                return
            except OSError:
                time.sleep(1)
        raise SystemExit(f"torchserve computes nothing: {self.server.log.name}")


def profile(name, file):
    """Flags of our server that take TorchServe's place."""
    return ["--profile", "torchserve", "--model-store", servers.GRAPHS, "--disable-token-auth",
            "--models", f"{name}={file}"]


def repository(name):
    """A model repository with the ONNX file behind a task."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="millrace-pictures-"))
    (root / name / "1").mkdir(parents=True)
    (root / name / "1/model.onnx").symlink_to(servers.GRAPHS / "resnet50.onnx")
    (root / name / "config.yaml").write_text(TASK)
    return root


def bench(line, head, rounds, names, clients=32, seconds=8):
    store = pathlib.Path(tempfile.mkdtemp(prefix="millrace-torchserve-"))
    head("32 clients", "server", "requests/s", "p50 ms", "p99 ms", "errors", "ours / this")
    for name in names:
        archive(name, store)
        found = {}

        def measure(label, port, requests):
            figures = asyncio.run(closed_loop(port, requests, clients, seconds, 3))
            found.setdefault(label, []).append(figures)

        if name == PICTURES:
            files = {"millrace /v1/tasks": "resnet50.onnx"}
        else:
            files = {"millrace": f"{name}.onnx", "millrace /predictions": f"{name}.onnx"}
        if name == "resnet50":
            files["millrace int8"] = quantized(name)
        for _ in range(rounds):
            for label, file in files.items():
                if name == PICTURES:
                    flags, requests = ["--model-repository", repository(name)], picture_requests
                elif "/predictions" in label:
                    flags, requests = profile(name, file), predictions_requests
                else:
                    flags = [f"{name}={servers.GRAPHS / file}"]
                    requests = kserve_requests
                with servers.millrace(*flags, "--max-queue-size", 100,
                                      ready="/ping" if "--profile" in flags
                                      else "/v2/health/ready") as ours:
                    measure(label, ours.http, requests(ours.http, name))
            for tuned in (False, True):
                peer = TorchServe(name, store, tuned)
                try:
                    measure(peer.name, peer.port, torchserve_requests(peer.port, name))
                finally:
                    peer.server.stop()
        middle = {label: {k: servers.median([f[k] for f in figures]) for k in figures[0]}
                  for label, figures in found.items()}
        for label, figures in found.items():
            ratios = [f"{mine} {middle[mine]['rps'] / middle[label]['rps']:.2f}"
                      for mine in files] if "Torch" in label else []
            line(name, label, servers.spread([f["rps"] for f in figures], 1),
                 f"{middle[label]['p50']:.0f}", f"{middle[label]['p99']:.0f}",
                 sum(f["errors"] for f in figures), ", ".join(ratios))
