#!/usr/bin/env python3
"""What LoRA adapters of rank 16 cost in a batch of 16 streams.

    python3 tests/bench/lora.py [--model FILE|SHAPE] [--millrace FILE] [--rounds N]
                                [--adapters 1,4,8] [--rank N] [--streams N]
                                [--modules q_proj,v_proj]
                                [--lora-dtype auto,int8] [--threads N]

--model: a GGUF file without experts, or the name of a real shape that
llm/random_gguf.py fills with random weights (qwen2.5-0.5b, llama-3.2-1b, ...).
Adapters of random numbers for every linear layer (or those of --modules) are
written to a temporary folder. One server for each --lora-dtype serves the model and
all of them; 16 clients ask for 64 tokens each, all of the base model, then of so
many adapters, by turns. Prints what an adapter has of the base's parameters, tokens
a second and CPU milliseconds a token, medians of the rounds, and the ratio of either
to the base's in the same round. Needs numpy, safetensors and gguf.
"""
import argparse
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

import gguf
import numpy
from safetensors.numpy import save_file

from llm import random_gguf

REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path.home() / ".cache/millrace/models"


def shape_of(model):
    """Number of layers, parameters in all, and of each linear layer in one of them
    rows out and values in."""
    tensors = {t.name: [int(n) for n in t.shape]
               for t in gguf.GGUFReader(model).tensors}
    layers = sum(name.endswith(".attn_q.weight") for name in tensors)
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}
    modules = {}
    for ours, module in names.items():
        values, rows = tensors[f"blk.0.{ours}.weight"]
        modules[module] = (rows, values)
    return layers, sum(map(math.prod, tensors.values())), modules


def write_adapter(folder, seed, rank, layers, modules):
    """Number of its parameters."""
    rng = numpy.random.default_rng(seed)
    tensors = {}
    for layer in range(layers):
        for module, (rows, values) in modules.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            for part, shape in (("A", (rank, values)), ("B", (rows, rank))):
                tensors[f"{name}.lora_{part}.weight"] = (
                    rng.standard_normal(shape, dtype=numpy.float32) * 0.02)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": rank,
        "target_modules": [m.split(".")[1] for m in modules]}))
    return sum(tensor.size for tensor in tensors.values())


def start(binary, model, adapters, dtype, threads):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    modules = [f"{path.name}={path}" for path in adapters]
    server = subprocess.Popen(
        [binary, "serve", f"base={model}", "--http-port", str(port),
         "--grpc-port", "-1", "--lora-modules", ",".join(modules),
         *(["--lora-dtype", dtype] if dtype else []),
         *(["--threads", threads] if threads else [])],
        stderr=subprocess.DEVNULL)
    for _ in range(1200):
        if server.poll() is not None:
            raise SystemExit(f"millrace ended with {server.returncode}")
        try:
            wire = http.client.HTTPConnection("127.0.0.1", port)
            wire.request("GET", "/health/ready")
            if wire.getresponse().status == 200:
                return server, port
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit("millrace did not become ready within a minute")


def generate(port, model, seed):
    """Tokens generated; the prompt has about 32, of a random model 60."""
    wire = http.client.HTTPConnection("127.0.0.1", port)
    prompt = " ".join(f"word{seed}" for _ in range(10))
    wire.request("POST", "/v1/completions", json.dumps({
        "model": model, "prompt": prompt, "max_tokens": 64,
        "ignore_eos": True, "temperature": 0}),
        {"Content-Type": "application/json"})
    answer = json.load(wire.getresponse())
    return answer["usage"]["completion_tokens"]


def cpu_seconds(server):
    fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text()
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def rate(server, port, models):
    """Tokens a second, and CPU milliseconds a token."""
    with concurrent.futures.ThreadPoolExecutor(len(models)) as clients:
        begun, spent = time.perf_counter(), cpu_seconds(server)
        tokens = sum(clients.map(generate, [port] * len(models), models,
                                 range(len(models))))
        return (tokens / (time.perf_counter() - begun),
                1000 * (cpu_seconds(server) - spent) / tokens)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--model", help="a file, or a shape of llm/random_gguf.py",
                    default=str(CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    ap.add_argument("--millrace", default=REPO / "build/release/bin/millrace")
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--adapters", default="8", help="numbers, by commas")
    ap.add_argument("--lora-dtype", default="",
                    help="by commas; default: not given")
    ap.add_argument("--threads", help="of each server")
    ap.add_argument("--rank", type=int, default=16)
    ap.add_argument("--streams", type=int, default=16)
    ap.add_argument("--modules", help="layers that adapters change")
    args = ap.parse_args()
    wanted = args.modules.split(",") if args.modules else None
    with tempfile.TemporaryDirectory() as folder:
        model = args.model
        if model in random_gguf.SHAPES:
            model = str(pathlib.Path(folder, "model.gguf"))
            random_gguf.main(args.model, model)
        layers, parameters, modules = shape_of(model)
        modules = {name: sizes for name, sizes in modules.items()
                   if wanted is None or name.split(".")[1] in wanted}
        counts = [int(count) for count in args.adapters.split(",")]
        adapters = [pathlib.Path(folder, f"adapter{i}")
                    for i in range(max(counts))]
        for seed, path in enumerate(adapters):
            size = write_adapter(path, seed, args.rank, layers, modules)
        print(f"{args.model}: {parameters / 1e6:.0f} million parameters, an adapter "
              f"{size / 1e6:.1f}, {max(counts)} of them "
              f"{max(counts) * size / parameters:.2f} of the base", flush=True)
        servers = {}
        try:
            for dtype in args.lora_dtype.split(","):
                servers[dtype] = start(args.millrace, model, adapters,
                                       dtype, args.threads)
            mixes = {}
            for dtype in servers:
                mixes["base", dtype] = ["base"] * args.streams
                for count in counts:
                    mixes[f"{count} adapters", dtype] = [
                        adapters[i % count].name for i in range(args.streams)]
            rates = {mix: [] for mix in mixes}
            for (_, dtype), models in mixes.items():
                rate(*servers[dtype], models)  # warm
            for _ in range(args.rounds):
                for mix, models in mixes.items():
                    rates[mix].append(rate(*servers[mix[1]], models))
        finally:
            for server, _ in servers.values():
                server.terminate()
                server.wait()
    for mix, values in rates.items():
        speeds, cpu = zip(*values)
        base = rates["base", mix[1]]
        print(f"{' '.join(mix)}: {statistics.median(speeds):.0f} tokens/s "
              f"({min(speeds):.0f} to {max(speeds):.0f}), "
              f"{statistics.median(cpu):.3f} ms of CPU a token; of the base "
              f"{statistics.median(a[0] / b[0] for a, b in zip(values, base)):.3f}"
              f" (asked 0.85) and "
              f"{statistics.median(a[1] / b[1] for a, b in zip(values, base)):.3f}")


if __name__ == "__main__":
    main()
