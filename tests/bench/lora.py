#!/usr/bin/env python3
"""What eight LoRA adapters of rank 16 cost in a batch of 16 streams.

    python3 tests/bench/lora.py [--model FILE] [--millrace FILE] [--rounds N]
                                [--adapters N] [--rank N] [--streams N]
                                [--modules q_proj,v_proj]

Adapters of random numbers for every linear layer of a llama (or those of
--modules) are written to a temporary folder. One server serves the model and all
of them; 16 clients ask for 64 tokens each, all of the base model, then two of
each adapter, by turns. Prints tokens a second of the rounds, medians and their
ratio. Needs numpy and safetensors.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

import numpy
from safetensors.numpy import save_file

REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path.home() / ".cache/millrace/models"
# Of SmolLM2-135M: rows out, values in.
LAYERS = 30
MODULES = {"self_attn.q_proj": (576, 576), "self_attn.k_proj": (192, 576),
           "self_attn.v_proj": (192, 576), "self_attn.o_proj": (576, 576),
           "mlp.gate_proj": (1536, 576), "mlp.up_proj": (1536, 576),
           "mlp.down_proj": (576, 1536)}


def write_adapter(folder, seed, rank, modules):
    rng = numpy.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
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


def start(binary, model, adapters):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    modules = [f"{path.name}={path}" for path in adapters]
    server = subprocess.Popen(
        [binary, "serve", f"base={model}", "--http-port", str(port),
         "--grpc-port", "-1", "--lora-modules", ",".join(modules)],
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
    """Tokens generated; the prompt has about 32."""
    wire = http.client.HTTPConnection("127.0.0.1", port)
    prompt = " ".join(f"word{seed}" for _ in range(10))
    wire.request("POST", "/v1/completions", json.dumps({
        "model": model, "prompt": prompt, "max_tokens": 64,
        "ignore_eos": True, "temperature": 0}),
        {"Content-Type": "application/json"})
    answer = json.load(wire.getresponse())
    return answer["usage"]["completion_tokens"]


def rate(port, models):
    with concurrent.futures.ThreadPoolExecutor(len(models)) as clients:
        begun = time.perf_counter()
        tokens = sum(clients.map(generate, [port] * len(models), models,
                                 range(len(models))))
        return tokens / (time.perf_counter() - begun)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--model", default=CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf")
    ap.add_argument("--millrace", default=REPO / "build/release/bin/millrace")
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--adapters", type=int, default=8)
    ap.add_argument("--rank", type=int, default=16)
    ap.add_argument("--streams", type=int, default=16)
    ap.add_argument("--modules", help="layers that adapters change")
    args = ap.parse_args()
    wanted = args.modules.split(",") if args.modules else None
    modules = {name: sizes for name, sizes in MODULES.items()
               if wanted is None or name.split(".")[1] in wanted}
    with tempfile.TemporaryDirectory() as folder:
        adapters = [pathlib.Path(folder, f"adapter{i}")
                    for i in range(args.adapters)]
        for seed, path in enumerate(adapters):
            write_adapter(path, seed, args.rank, modules)
        server, port = start(args.millrace, args.model, adapters)
        try:
            mixes = {"base": ["base"] * args.streams,
                     "adapters": [adapters[i % args.adapters].name
                                  for i in range(args.streams)]}
            rates = {name: [] for name in mixes}
            for models in mixes.values():
                rate(port, models)  # warm
            for _ in range(args.rounds):
                for name, models in mixes.items():
                    rates[name].append(rate(port, models))
        finally:
            server.terminate()
            server.wait()
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):.0f} tokens/s "
              f"({min(values):.0f} to {max(values):.0f})")
    ratios = [a / b for a, b in zip(rates["adapters"], rates["base"])]
    print(f"adapters / base, median of the rounds: "
          f"{statistics.median(ratios):.3f} (asked 0.85)")


if __name__ == "__main__":
    main()
